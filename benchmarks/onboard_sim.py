"""Onboarding without the hardware: one platform of data/ is hidden, then taught by replay.

    python benchmarks/onboard_sim.py [--hide PLATFORM ...] [--minutes 15] [--seeds 3]

A model over the other platforms is trained on their training rows; its nearest head is judged on
the hidden platform's test rows. Then probes are chosen among the training programs that were
measured there, as `tensorese onboard` chooses them, and answered from the store by
`ReplayMeasurer` until building and running them would have taken the minutes on `--builders`
cores. What was answered teaches a head, which is judged on the same test rows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensorese.models.disk import Card
from tensorese.models.folder import save_model

from common import ROOT, write_result
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.metrics import TaskResult, bootstrap, summary
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.measure.base import Candidate
from tensorese.measure.replay import ReplayMeasurer
from tensorese.models.catalog import choose
from tensorese.models.physics_net import SmallModel
from tensorese.models.tlp import TLP
from tensorese.models.trees import add_trees
from tensorese.onboard.adapt import TREE_VOTES, adapt, grow, start_from
from tensorese.onboard.probes import choose_probes
from tensorese.records.nouns import Platform, Program, Status
from tensorese.records.store import Store
from tensorese.training.physics import (
    Run,
    SmallRecipe,
    SmallSet,
    small_scores,
    small_set,
    train_small,
)

PER_ROUND = 8


def without(programs: ProgramSet, hidden: str) -> ProgramSet:
    heads = [k for k, name in enumerate(programs.platforms) if name != hidden]
    return replace(
        programs,
        platforms=tuple(programs.platforms[k] for k in heads),
        latency=programs.latency[:, heads],
        failed=programs.failed[:, heads],
    )


def nearest_model(
    given: SmallSet, hidden: str, recipe: SmallRecipe, device: str, folder: Path
) -> tuple[Path, str]:
    others = without(given.programs, hidden)
    tasks = tuple(range(len(others.tasks)))
    model = train_small(given, [Run(programs=others, tasks=tasks)], recipe, device)[0]
    save_model(folder / "others", model.cpu(), Card(training_workloads=others.tasks))
    seen = replace(given, programs=others)
    forests = {name: grow(seen, name, tasks) for name in others.platforms}
    grown = {name: found["own"] for name, found in forests.items() if "own" in found}
    if grown:  # as the models that ship have them
        add_trees(folder / "others", grown, TREE_VOTES)
    choice = choose(Platform(name=hidden), [folder])
    assert choice is not None
    return choice.folder, choice.head


def probe(
    given: SmallSet, measurer: ReplayMeasurer, start: SmallModel, head: str, seconds: float
) -> ProgramSet:
    """The labels that the time suffices for, task by task in rounds."""
    programs = given.programs
    place = start.head_index(head)
    known: dict[int, list[int]] = {}
    labels = np.full((len(programs), 1), np.nan)
    failed = np.zeros((len(programs), 1), dtype=bool)
    place_of = {name: k for k, name in enumerate(programs.ids)}
    offered = {
        task: [place_of[p.id] for p in measurer.programs(name) if p.id in place_of]
        for task, name in enumerate(programs.tasks)
    }
    while measurer.simulated_secs < seconds and any(offered.values()):
        for task, members in offered.items():
            if not members or measurer.simulated_secs >= seconds:
                continue
            features = given.features[members]
            before = given.features[known[task]] if task in known else None
            speeds = start.speed(features, place)
            chosen = [members[k] for k in choose_probes(features, speeds, PER_ROUND, before)]
            for k, (latency, bad) in _answers(programs, measurer, chosen).items():
                labels[k, 0], failed[k, 0] = latency, bad
            known.setdefault(task, []).extend(chosen)
            offered[task] = [k for k in members if k not in set(chosen)]
    return replace(programs, platforms=(measurer.platform.name,), latency=labels, failed=failed)


def _answers(
    programs: ProgramSet, measurer: ReplayMeasurer, chosen: list[int]
) -> dict[int, tuple[float, bool]]:
    candidates = [Candidate(program=_program(programs, k)) for k in chosen]
    found = measurer.measure(candidates)
    return {
        k: (m.latency, m.status not in (Status.OK, Status.CENSORED, Status.INFRA_ERROR))
        for k, m in zip(chosen, found, strict=True)
    }


def _program(programs: ProgramSet, index: int) -> Program:
    pair = programs.pairs[programs.pair[index]]
    place = int(np.flatnonzero(programs.members[programs.pair[index]] == index)[0])
    row = programs.decisions[programs.pair[index]][place]
    return Program(
        workload=programs.workloads[pair.workload],
        sketch=pair.sketch,
        decisions=tuple(int(v) for v in row),
    )


def judged(model: TLP, test: SmallSet, platform: str) -> list[TaskResult]:
    scores = small_scores(model, test, platform)
    return judge_scores(test.programs, platform, scores, range(len(test.programs.tasks)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    parser.add_argument("--hide", nargs="*", default=["emeraldrapids-2c", "emeraldrapids-16c"])
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--builders", type=float, default=2.0, help="Cores that build and run.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    with Store.open(args.data) as store:
        given = small_set(read_programs([store], split="train"))
        result = {hidden: _hide(args, given, store, hidden) for hidden in args.hide}
    print(json.dumps(result, indent=1))
    write_result("onboard_sim", {"minutes": args.minutes, "hidden": result})


def _hide(args: argparse.Namespace, given: SmallSet, store: Store, hidden: str) -> dict[str, Any]:
    test = small_set(read_programs([store], platforms=(hidden,), split="test"))
    rows = [_run(args, given, test, store, hidden, seed) for seed in range(args.seeds)]
    gains = np.array([row.pop("gain_by_task") for row in rows]).mean(0)
    interval = bootstrap(gains.tolist())
    return {"gain": [interval.mean, interval.low, interval.high], "runs": rows}


def _run(
    args: argparse.Namespace,
    given: SmallSet,
    test: SmallSet,
    store: Store,
    hidden: str,
    seed: int,
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        recipe = SmallRecipe(steps=args.steps)
        folder, head = nearest_model(given, hidden, recipe, args.device, Path(scratch))
        before = judged(start_from(folder, head, hidden).eval(), test, hidden)
        measurer = ReplayMeasurer(store, hidden)
        labelled = probe(
            given, measurer, SmallModel(folder), head, 60 * args.minutes * args.builders
        )
        taught = adapt(replace(given, programs=labelled), hidden, folder, head, seed=seed)
        after = judged(taught.model, test, hidden)
    row = {
        "seed": seed,
        "head": head,
        "variant": taught.variant,
        "trees": str(taught.votes),
        "labels": int(np.isfinite(labelled.latency).sum()),
        "simulated_secs": round(measurer.simulated_secs, 1),
        "before": _kept(before),
        "after": _kept(after),
        "gain_by_task": [b.ratio(1) - a.ratio(1) for a, b in zip(before, after, strict=True)],
    }
    print(json.dumps({k: v for k, v in row.items() if k != "gain_by_task"}), flush=True)
    return row


def _kept(results: list[TaskResult]) -> dict[str, float]:
    figures = summary(results)
    return {k: round(float(figures[k]), 4) for k in ("top1", "top5", "pairwise", "random_top1")}


if __name__ == "__main__":
    main()
