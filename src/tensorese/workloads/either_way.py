"""Convolutions that may go either way, and the tasks of both: what tuning decides by measuring.

What a convolution's two ways differ in is read off the network, extracted once as it is estimated
and once with this convolution the other way. Tasks of the other way weigh nothing until it is
chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tensorese.records.nouns import Workload
from tensorese.records.run_entries import EitherWay, Way
from tensorese.records.task import Task
from tensorese.workloads.winograd import Choice, Key, estimates
from tensorese.workloads.winograd_kernels import TILES, is_transform, transform_schedule

_SURE = 3.0
"""So many times cheaper by the estimate, which is off by 2 where tensors leave the caches."""
_PROGRAMS = 4  # that a task without weight gets, see the scheduler

Extract = Callable[..., list[Task]]
"""`tasks_of_all` of a network with its transforms, given `winograd`."""
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
    """Tasks to tune, and the convolutions to be decided; `now` are `extract(winograd=choice)`.

    Deciding may take so many `trials`. A run that was begun is `known` to decide on these only.
    """
    if known is None:
        others, found = _differences(now, choice, extract, trials)
        ways = _with_transforms(found, [*now, *others], timed)
    else:
        ways = list(known)
        others = extract(winograd=Choice({w.key: w.ways[1].m for w in ways})) if ways else []
    there = {task.workload.id for task in now}
    wanted = {id_ for one in ways for id_ in one.ways[1].calls} - there
    more = {t.workload.id: replace(t, weight=0) for t in others if t.workload.id in wanted}
    open_ = [task for task in now if not is_transform(task.module)]
    return [*open_, *more.values()], ways


def choice_of(ways: Iterable[EitherWay]) -> Choice:
    return Choice({one.key: one.ways[0].m for one in ways})


def said(choice: Choice, ways: Iterable[EitherWay]) -> str:
    """How many convolutions go which way, for people; empty where none has the choice."""
    asked, ways = choice.asked, list(ways)
    last = replace(choice, measured={**choice.measured, **choice_of(ways).measured})
    decided = {one.key for one in ways if one.decided}
    by_winograd = sum(n for key, n in asked.items() if last.tile(key))
    measured = sum(asked[key] for key in decided)
    guessed = sum(asked[key] for key, _ in doubtful(last) if key not in decided)
    if not asked:
        return ""
    return (
        f"{by_winograd} of {asked.total()} convolutions by Winograd's algorithm, {measured} "
        "decided by measuring" + (f", {guessed} doubtful ones by an estimate" if guessed else "")
    )


def doubtful(choice: Choice) -> list[tuple[Key, int]]:
    """Convolutions that might as well go by another m, and that m; most time at stake first."""
    found = {}
    for key, n in choice.asked.items():
        costs, m = estimates(key[:4], key[4]), choice.tile(key)
        other = 0 if m else min(TILES, key=costs.__getitem__)
        ratio = costs[m] / costs[other]
        if 1 / _SURE < ratio < _SURE:
            found[key, other] = n * costs[m] * min(ratio, 1 / ratio)
    return sorted(found, key=lambda one: -found[one])


def _differences(
    now: Sequence[Task], choice: Choice, extract: Extract, trials: float
) -> tuple[list[Task], list[EitherWay]]:
    """Convolutions whose other way costs no more `trials` in all, and the tasks of those ways."""
    free = {task.workload.id for task in now if not is_transform(task.module)}
    others: list[Task] = []
    found: list[EitherWay] = []
    for key, m in doubtful(choice):
        there = extract(winograd=Choice({key: m}))
        calls = _more(now, there), _more(there, now)
        modules = {task.workload.id: task.module for task in (*now, *there)}
        new = (calls[0] | calls[1]).keys() - free
        cost = sum(1 if is_transform(modules[id_]) else _PROGRAMS for id_ in new)
        if cost > trials:
            break
        trials -= cost
        free |= new
        others += there
        first, second = Way(m=choice.tile(key), calls=calls[0]), Way(m=m, calls=calls[1])
        found.append(EitherWay(key=key, ways=(first, second)))
    return others, found


def _more(these: Sequence[Task], those: Sequence[Task]) -> Counter[str]:
    """Calls that only the first make."""
    first, second = (Counter({t.workload.id: t.weight for t in some}) for some in (these, those))
    return first - second


def _with_transforms(
    found: Sequence[EitherWay], tasks: Sequence[Task], timed: Timed
) -> list[EitherWay]:
    """Those with the seconds of their transforms, which are no calls of tasks then."""
    used = {id_ for one in found for way in one.ways for id_ in way.calls}
    fixed = {t.workload.id: t for t in tasks if t.workload.id in used and is_transform(t.module)}
    # Without its module a workload is not verified: the whole library is, in the end.
    kernels = [
        (replace(task.workload, module=""), transform_schedule(task.module))
        for task in fixed.values()
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
