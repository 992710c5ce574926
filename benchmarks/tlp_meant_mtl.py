"""Few labels of one CPU beside those of others, and what that is to beat.

All train for as many steps, and keep the epoch that orders the target's validation tasks best: a
choice that few labels would not allow, the same for all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tensorese.features.programs import ProgramSet
from tensorese.training.labels import only
from tlp_meant_report import COUNTS, CPUS
from tlp_meant_runs import Data, Run, System, Weights, pre_train
from tlp_meant_session import Session, physics_only

MAKERS = {name: name[:5] for name in CPUS}
PER_TASK = 25
"""Labels of a task where only few are kept: a task is measured as in a short run, or not at all."""
MTL_STEPS = 2400
"""Some 35 epochs of one CPU's labels."""


def helper_sets(target: str) -> list[tuple[str, ...]]:
    """None, each, pairs of one maker and of both, three and four of the other CPUs."""
    same = [name for name in CPUS if name != target and MAKERS[name] == MAKERS[target]]
    other = [name for name in CPUS if MAKERS[name] != MAKERS[target]]
    sets: list[tuple[str, ...]] = [(), *((name,) for name in (*same, *other))]
    sets += [tuple(two) for two in (same[:2], other[:2], (same[0], other[0])) if len(two) == 2]
    sets += [tuple([*same, *other][:3]), tuple([*other, *same][:3]), (*same, *other)]
    return list(dict.fromkeys(sets))


def few_labels(data: Data, target: str, count: int, seed: int) -> np.ndarray[Any, Any]:
    """`count` programs measured on the target, some of each of a few training tasks."""
    rng = np.random.default_rng([seed, count])
    programs, head = data.programs, data.programs.head(target)
    valid = rng.permutation(programs.valid(head))
    kept: list[Any] = []
    for task in rng.permutation(np.array(data.train)):
        if len(kept) < count:
            kept += valid[programs.task[valid] == task][:PER_TASK].tolist()
    return np.array(kept[:count], dtype=np.int64)


def with_helpers(
    programs: ProgramSet, target: str, few: np.ndarray[Any, Any], helpers: Sequence[str]
) -> ProgramSet:
    """The few labels of the target and all of the helpers; the others have none."""
    latency, failed = np.full_like(programs.latency, np.nan), np.zeros_like(programs.failed)
    for name in helpers:
        head = programs.head(name)
        latency[:, head], failed[:, head] = programs.latency[:, head], programs.failed[:, head]
    head = programs.head(target)
    latency[few, head] = programs.latency[few, head]
    return replace(programs, latency=latency, failed=failed)


def mtl_system(args: argparse.Namespace) -> System:
    if args.published:
        return System(name="published", paper=True)
    return System(name="language only", fit={"patience": 1000}, steps=MTL_STEPS)


def mtl(session: Session) -> None:
    data = session.data("cpu")
    system, stage = mtl_system(session.args), "mtl"
    stage += ", published" if session.args.published else ""
    targets = session.here("cpu")
    everything = [
        (target, count, seed, few_labels(data, target, count, seed))
        for seed in session.seeds
        for target in targets
        for count in COUNTS
    ]

    def run(name: str, case: Any, helpers: Sequence[str], start: Weights | None = None) -> Run:
        target, count, seed, few = case
        key = {"stage": stage, "system": name, "seed": seed, "labels": count}
        labels = with_helpers(data.programs, target, few, helpers)
        return Run(
            key=key, labels=labels, tasks=data.train, judged=(target,), seed=seed, start=start
        )

    for most in range(5):  # alike numbers of labels train side by side
        runs = [
            run(f"+ {', '.join(helpers)}" if helpers else "alone", case, helpers)
            for case in everything
            for helpers in helper_sets(case[0])
            if len(helpers) == most
        ]
        session.run(data, system, runs, test=True)
    if not session.args.published:
        against(session, data, system, everything, run)


def against(session: Session, data: Data, system: System, everything: Any, run: Any) -> None:
    """What adding platforms is to beat: the same few labels, other ways to know more."""
    config = system.recipe().config_for(data.programs)
    steps = 1 if session.args.quick else 3000
    before = [run("hidden decisions first", case, ()) for case in everything]
    before = [one for one in before if session.rows.missing(one) and not session.late()]
    before = [replace(one, start=pre_train(data, config, one.seed, steps)) for one in before]
    session.run(data, system, before, test=True)
    tuned = [run("fine-tuned", case, ()) for case in everything]
    if any(map(session.rows.missing, tuned)) and not session.late():
        started = helper_models(session, data, system, everything, run)
        cases = [case for case in everything if (case[0], case[2]) in started]
        tuned = [run("fine-tuned", case, (), started[case[0], case[2]]) for case in cases]
        session.run(data, system, tuned, test=True)
    local = [run("local physics", case, ()) for case in everything]
    local = [replace(one, labels=only(one.labels, one.judged[0])) for one in local]
    physics_only(session, data, local)


def helper_models(
    session: Session, data: Data, system: System, everything: Any, run: Any
) -> dict[tuple[str, int], Weights]:
    """By target and seed: a network of the other CPUs; the target's head starts as its nearest's.

    It also has a row, of no label of the target's own.
    """
    cases = {(target, seed): (target, 0, seed, few[:0]) for target, _, seed, few in everything}
    nearest = {t: next(n for n in CPUS if n != t and MAKERS[n] == MAKERS[t]) for t, _ in cases}
    runs = [
        replace(
            run("others only", case, [name for name in CPUS if name != case[0]]),
            head=nearest[case[0]],
        )
        for case in cases.values()
    ]
    weights = session.run(data, system, runs, test=True, again=True)
    heads = data.programs.platforms
    found: dict[tuple[str, int], Weights] = {}
    for key, one in zip(cases, weights, strict=False):
        mine, near = (f".heads.{heads.index(name)}." for name in (key[0], nearest[key[0]]))
        copied = {k.replace(near, mine): v for k, v in one.items() if near in k}
        found[key] = {**one, **copied}
    return found
