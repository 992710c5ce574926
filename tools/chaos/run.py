"""All parts of the chaos, in two lanes; each part's line is printed when it is there."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from common import write_result
from kills import killed_collecting, killed_tuning
from outcome import Outcome, table
from readers import READERS
from reading import attempts_at
from surroundings import surroundings

ALL = "readers,kills,surroundings"
Lane: TypeAlias = Callable[[argparse.Namespace], Iterator[Outcome]]


def run(wanted: argparse.Namespace) -> int:
    started = time.monotonic()
    # Kills mostly wait; readers, of which each attempt is a short computation, fill the time.
    with ThreadPoolExecutor(2) as lanes:
        running = [lanes.submit(_each, lane, wanted) for lane in (_readers, _command_line)]
        outcomes = [outcome for lane in running for outcome in lane.result()]
    print(table(outcomes))
    if wanted.attempts >= 10_000 and wanted.kills >= 50 and wanted.only == ALL:
        rows = [outcome.to_dict() for outcome in outcomes]
        result = {"seed": wanted.seed, "secs": round(time.monotonic() - started), "parts": rows}
        print(write_result("chaos", result))
    return 0 if all(outcome.clean for outcome in outcomes) else 1


def _each(lane: Lane, wanted: argparse.Namespace) -> list[Outcome]:
    outcomes = []
    for outcome in lane(wanted):
        outcomes.append(outcome)
        print(table([outcome]), flush=True)
    return outcomes


def _readers(wanted: argparse.Namespace) -> Iterator[Outcome]:
    if "readers" in wanted.only:
        for name, reader in READERS.items():
            yield attempts_at(name, max(1, reader.share * wanted.attempts // 10_000), wanted.seed)


def _command_line(wanted: argparse.Namespace) -> Iterator[Outcome]:
    of_tune = wanted.kills * 3 // 5
    if "kills" in wanted.only:
        yield killed_tuning(of_tune, wanted.seed)
        yield killed_collecting(wanted.kills - of_tune, wanted.seed)
    if "surroundings" in wanted.only:
        yield from surroundings(wanted.seed)
