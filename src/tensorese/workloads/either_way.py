"""What may be computed either way, and the tasks of both: what tuning decides by measuring.

What the two ways of a convolution or an attention differ in is read off the network, extracted
once as it is estimated and once with this one the other way. Tasks of the other way weigh nothing
until it is chosen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tensorese.records.nouns import Workload
from tensorese.records.run_entries import EitherWay, Way
from tensorese.records.task import Task
from tensorese.workloads import attention, winograd
from tensorese.workloads.choice import Choice, Key, is_convolution
from tensorese.workloads.fixed_kernels import fixed_schedule, is_fixed

_SURE = 3.0
"""So many times cheaper by the estimate, which is off by 2 where tensors leave the caches."""
_PROGRAMS = 4  # that a task without weight gets, see the scheduler

Extract = Callable[[Choice], list[Task]]
"""`tasks_of_all` of a network with its fixed kernels, computed so."""
Timed = Callable[[Sequence[tuple[Workload, Any]]], Sequence[float]]
"""Seconds of scheduled modules, each with its workload; NaN for one that does not run."""


def tasks_either_way(
    now: Sequence[Task],
    choice: Choice,
    extract: Extract,
    *,
    known: Sequence[EitherWay] | None,
    trials: float,
    timed: Timed,
) -> tuple[list[Task], list[EitherWay]]:
    """Tasks to tune, and the parts to be decided; `now` are `extract(choice)`.

    Deciding may take so many `trials`. A run that was begun is `known` to decide on these only.
    """
    open_ = [task for task in now if not is_fixed(task.module)]
    if known is None:
        trials = trials if open_ else math.inf  # there is nothing else to measure
        others, found = _differences(now, choice, extract, trials)
        ways = _with_fixed(found, [*now, *others], timed)
    else:
        ways = list(known)
        others = extract(Choice({w.key: w.ways[1].m for w in ways})) if ways else []
    there = {task.workload.id for task in now}
    wanted = {id_ for one in ways for id_ in one.ways[1].calls} - there
    more = {t.workload.id: replace(t, weight=0) for t in others if t.workload.id in wanted}
    return [*open_, *more.values()], ways


def choice_of(ways: Iterable[EitherWay]) -> Choice:
    return Choice({one.key: one.ways[0].m for one in ways})


def way_of(choice: Choice, key: Key) -> int:
    if is_convolution(key):
        return choice.way(key, winograd.best_tile(key[:4], key[4]))
    return choice.way(key, attention.fused(key))


def estimates_of(key: Key) -> dict[int, float]:
    """The cost of each way, 0 being what the network says."""
    if is_convolution(key):
        return winograd.estimates(key[:4], key[4])
    return attention.estimates(key)


def said(choice: Choice, ways: Iterable[EitherWay]) -> str:
    """How many convolutions and attentions go which way, for people; empty where none has the
    choice."""
    ways = list(ways)
    last = replace(choice, measured={**choice.measured, **choice_of(ways).measured})
    decided = {one.key for one in ways if one.decided}
    convolutions = {key for key in choice.asked if is_convolution(key)}
    sentences = (
        _said(last, decided, convolutions, "convolutions by Winograd's algorithm"),
        _said(last, decided, choice.asked.keys() - convolutions, "attentions in one kernel"),
    )
    return "; ".join(filter(None, sentences))


def _said(choice: Choice, decided: set[Key], keys: set[Key], what: str) -> str:
    asked = {key: choice.asked[key] for key in keys}
    otherwise = sum(n for key, n in asked.items() if way_of(choice, key))
    measured = sum(n for key, n in asked.items() if key in decided)
    doubts = {key for key, _ in doubtful(choice)} & keys - decided
    guessed = sum(asked[key] for key in doubts)
    if not asked:
        return ""
    return f"{otherwise} of {sum(asked.values())} {what}, {measured} decided by measuring" + (
        f", {guessed} doubtful ones by an estimate" if guessed else ""
    )


def doubtful(choice: Choice) -> list[tuple[Key, int]]:
    """What might as well go another way, and that way; most time at stake first."""
    found = {}
    for key, n in choice.asked.items():
        costs, m = estimates_of(key), way_of(choice, key)
        other = 0 if m else min(costs.keys() - {0}, key=costs.__getitem__)
        ratio = costs[m] / costs[other]
        if 1 / _SURE < ratio < _SURE:
            found[key, other] = n * costs[m] * min(ratio, 1 / ratio)
    return sorted(found, key=lambda one: -found[one])


def _differences(
    now: Sequence[Task], choice: Choice, extract: Extract, trials: float
) -> tuple[list[Task], list[EitherWay]]:
    """What costs no more `trials` in all the other way, and the tasks of those ways."""
    free = {task.workload.id for task in now if not is_fixed(task.module)}
    others: list[Task] = []
    found: list[EitherWay] = []
    for key, m in doubtful(choice):
        there = extract(Choice({key: m}))
        calls = _more(now, there), _more(there, now)
        modules = {task.workload.id: task.module for task in (*now, *there)}
        new = (calls[0] | calls[1]).keys() - free
        cost = sum(1 if is_fixed(modules[id_]) else _PROGRAMS for id_ in new)
        if cost > trials:
            break
        trials -= cost
        free |= new
        others += there
        first, second = Way(m=way_of(choice, key), calls=calls[0]), Way(m=m, calls=calls[1])
        found.append(EitherWay(key=key, ways=(first, second)))
    return others, found


def _more(these: Sequence[Task], those: Sequence[Task]) -> Counter[str]:
    """Calls that only the first make."""
    first, second = (Counter({t.workload.id: t.weight for t in some}) for some in (these, those))
    return first - second


def _with_fixed(found: Sequence[EitherWay], tasks: Sequence[Task], timed: Timed) -> list[EitherWay]:
    """Those with the seconds of their fixed kernels, which are no calls of tasks then."""
    used = {id_ for one in found for way in one.ways for id_ in way.calls}
    fixed = {t.workload.id: t for t in tasks if t.workload.id in used and is_fixed(t.module)}
    # Without its module a workload is not verified: the whole library is, in the end.
    kernels = [
        (replace(task.workload, module=""), fixed_schedule(task.module)) for task in fixed.values()
    ]
    secs = dict(zip(fixed, timed(kernels), strict=True)) if kernels else {}
    made = [
        replace(one, ways=(_split(one.ways[0], secs), _split(one.ways[1], secs))) for one in found
    ]
    return [one for one in made if all(way.fixed == way.fixed for way in one.ways)]


def _split(way: Way, secs: dict[str, float]) -> Way:
    calls = {id_: n for id_, n in way.calls.items() if id_ not in secs}
    fixed = sum(n * secs[id_] for id_, n in way.calls.items() if id_ in secs)
    return replace(way, calls=calls, fixed=float(fixed))
