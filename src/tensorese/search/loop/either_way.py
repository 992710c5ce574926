"""Which way a convolution is computed, decided once the tasks of both ways were visited.

Tasks of the way that is not taken weigh nothing: they are visited last, with few programs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorese.records.run_entries import EitherWay, Way

if TYPE_CHECKING:
    from tensorese.search.loop.task import TuningTask

_NOISE = 0.05
"""A way that gains less is no better."""
_AWAY = "the network computes it another way"


def settled(ways: Sequence[EitherWay], tasks: Sequence[TuningTask]) -> list[EitherWay]:
    """`ways` with those decided that can be now; tasks weigh what they then do in the network."""
    by_id = {task.id: task for task in tasks}
    now = [one if one.decided else _decided(one, by_id) for one in ways]
    for before, after in zip(ways, now, strict=True):
        if before.ways[0].m != after.ways[0].m:
            for sign, way in zip((1, -1), after.ways, strict=True):
                for id_, calls in way.calls.items():
                    by_id[id_].weigh(by_id[id_].task.weight + sign * calls)
    undecided = {id_ for one in now if not one.decided for way in one.ways for id_ in way.calls}
    for task in tasks:
        if ways and not task.task.weight and task.id not in undecided:
            task.progress.over = task.progress.over or _AWAY
        elif task.progress.over == _AWAY:
            task.progress.over = ""
    return now


def _decided(one: EitherWay, tasks: Mapping[str, TuningTask]) -> EitherWay:
    """As it is while one of its tasks is still to be visited, or is none of this sitting's."""
    needed = {id_ for way in one.ways for id_ in way.calls}
    visited = {i for i in needed & tasks.keys() if tasks[i].measurements or tasks[i].progress.over}
    if visited != needed:
        return one
    first, second = (replace(way, secs=_secs(way, tasks)) for way in one.ways)
    better = (second.secs or math.inf) < (1 - _NOISE) * (first.secs or math.inf)
    return replace(one, ways=(second, first) if better else (first, second), decided=True)


def _secs(way: Way, tasks: Mapping[str, TuningTask]) -> float | None:
    """None where a task has no program that runs."""
    secs = way.fixed + sum(calls * tasks[id_].progress.best for id_, calls in way.calls.items())
    return secs if secs < math.inf else None
