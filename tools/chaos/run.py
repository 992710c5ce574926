"""All parts of the chaos, one after another; each part's line is printed when it is there."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from common import write_result
from outcome import Outcome, table
from reading import attempts_at


def run(wanted: argparse.Namespace) -> int:
    started = time.monotonic()
    outcomes: list[Outcome] = []
    for outcome in parts(wanted):
        outcomes.append(outcome)
        print(table([outcome]), flush=True)
    print(table(outcomes))
    if wanted.attempts >= 10_000 and wanted.kills >= 50 and wanted.only.count(",") == 2:
        rows = [outcome.to_dict() for outcome in outcomes]
        result = {"seed": wanted.seed, "secs": round(time.monotonic() - started), "parts": rows}
        print(write_result("chaos", result))
    return 0 if all(outcome.clean for outcome in outcomes) else 1


def parts(wanted: argparse.Namespace) -> Iterator[Outcome]:
    if "readers" in wanted.only:
        from readers import READERS

        for name, reader in READERS.items():
            yield attempts_at(name, max(1, reader.share * wanted.attempts // 10_000), wanted.seed)
    if "kills" in wanted.only:
        from kills import killed_collecting, killed_tuning

        yield killed_tuning(wanted.kills * 3 // 5, wanted.seed)
        yield killed_collecting(wanted.kills - wanted.kills * 3 // 5, wanted.seed)
    if "surroundings" in wanted.only:
        from surroundings import surroundings

        yield from surroundings(wanted.seed)
