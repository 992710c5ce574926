"""All parts of the chaos, in three lanes; each part's line is printed when it is there."""

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
    # Much of it waits; each lane has temporary folders, and so locks, of its own.
    with ThreadPoolExecutor(len(LANES)) as lanes:
        running = [lanes.submit(_each, lane, wanted) for lane in LANES]
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


def _tune(wanted: argparse.Namespace) -> Iterator[Outcome]:
    if "kills" in wanted.only:
        yield killed_tuning(wanted.kills * 3 // 5, wanted.seed)


def _others(wanted: argparse.Namespace) -> Iterator[Outcome]:
    if "kills" in wanted.only:
        yield killed_collecting(wanted.kills - wanted.kills * 3 // 5, wanted.seed)
    if "surroundings" in wanted.only:
        yield from surroundings(wanted.seed)


LANES: tuple[Lane, ...] = (_readers, _tune, _others)
