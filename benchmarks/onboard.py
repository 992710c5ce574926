"""What onboarding gains on test rows: on a machine that no model has seen, or with one hidden.

    tensorese collect --tasks data/tasks.parquet --split test --programs data/cpu --out TEST
    tensorese onboard --minutes 15 --out MODEL
    python benchmarks/onboard.py measured MODEL TEST [--seeds 3] [--start FOLDER HEAD]
    python benchmarks/onboard.py replayed [--hide PLATFORM ...] [--minutes 15] [--seeds 3]

`measured` fits the nearest shipped head to what MODEL/store holds, once a seed; the head before and
each fitted one rank TEST's programs. Where a model of the platform ships by now, `--start` names
what there was before. Probes are of training tasks, so no test task is ever learnt from.

`replayed` needs no hardware: a model of the other platforms' training rows is the start. Probes
are chosen as `tensorese onboard` chooses them, among the training programs that were measured on
the hidden platform, and answered from the store by `ReplayMeasurer` until building and running them
would have taken the minutes on `--builders` cores. Writes MACHINE-replayed.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT, machine_name, write_result
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.metrics import TaskResult, bootstrap, summary
from tensorese.evaluation.splits import check_disjoint
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.measure.base import Candidate
from tensorese.measure.replay import ReplayMeasurer
from tensorese.models.base import Card, Model, load_model, save_model
from tensorese.models.catalog import SHIPPED, choose
from tensorese.models.ensemble import Ensemble, Member
from tensorese.models.trees import Trees
from tensorese.onboard.adapt import LEAST_LEAF, TREE_VOTES, TREES, Start, adapt
from tensorese.onboard.probes import choose_probes
from tensorese.onboard.session import STORE
from tensorese.records.nouns import Platform
from tensorese.records.store import Store
from tensorese.training.fine_tune import NewLabels
from tensorese.training.physics import FitJob, PhysicsFit, PhysicsSet, physics_set, train_physics
from tensorese.training.trees import BOTH, can_grow, grow_on

PER_ROUND = 8


def judged(model: Model, test: ProgramSet, platform: str) -> list[TaskResult]:
    scores = model.rank(model.read_all(test), platform).astype(np.float64)
    return judge_scores(test, platform, scores, range(len(test.tasks)))


def kept(results: list[TaskResult]) -> dict[str, float]:
    figures = summary(results)
    return {k: round(float(figures[k]), 4) for k in ("top1", "top5", "pairwise", "random_top1")}


def adapted(
    args: argparse.Namespace, probes: ProgramSet, test: ProgramSet, folder: Path, head: str
) -> dict[str, Any]:
    """The head before, and fitted to the probes once a seed."""
    labels, (platform,) = NewLabels(probes), probes.platforms
    before = judged(Start(folder, head, platform).model(), test, platform)
    rows: list[dict[str, Any]] = []
    gains = []
    for seed in range(args.seeds):
        fitted = adapt(labels, platform, folder, head, seed=seed, quick=args.quick)
        after = judged(fitted.model, test, platform)
        gains.append([b.ratio(1) - a.ratio(1) for a, b in zip(before, after, strict=True)])
        row = {"seed": seed, "variant": fitted.variant, "trees": str(fitted.votes)}
        rows.append({**row, "after": kept(after)})
        print(rows[-1], flush=True)
    gain = bootstrap(np.mean(gains, axis=0).tolist())
    return {
        "platform": platform,
        "start": f"{folder.name}, head {head}",
        "labels": int(np.isfinite(probes.latency).sum()),
        "probe_tasks": len(probes.tasks),
        "test_tasks": len(before),
        "test_programs": int(np.isfinite(test.latency).sum()),
        "before": kept(before),
        "gain": [gain.mean, gain.low, gain.high],
        "runs": rows,
    }


# -- measured --------------------------------------------------------------------------------


def measured(args: argparse.Namespace) -> None:
    with Store.open(args.model / STORE) as store, Store.open(args.test) as tests:
        (platform,) = store.platforms()
        probes = read_programs([store], platforms=(platform,), split="train")
        test = read_programs([tests], platforms=(platform,), split="test")
        choice = choose(next(iter(store.measurements())).platform, [SHIPPED])
    check_disjoint(probes.tasks, test.tasks, probes.workloads)
    if args.start:
        folder, head = Path(args.start[0]), args.start[1]
    elif choice is not None and choice.head != platform:
        folder, head = choice.folder, choice.head
    else:
        raise SystemExit(f"a shipped model knows {platform}; name another with --start FOLDER HEAD")
    result = adapted(args, probes, test, folder, head)
    print(json.dumps(result, indent=1))
    if not args.quick:
        write_result("onboard", result)


# -- replayed --------------------------------------------------------------------------------


def without(programs: ProgramSet, hidden: str) -> ProgramSet:
    heads = [k for k, name in enumerate(programs.platforms) if name != hidden]
    return replace(
        programs,
        platforms=tuple(programs.platforms[k] for k in heads),
        latency=programs.latency[:, heads],
        failed=programs.failed[:, heads],
    )


def nearest_model(data: PhysicsSet, hidden: str, steps: int, folder: Path) -> tuple[Path, str]:
    others = without(data.programs, hidden)
    tasks = tuple(range(len(others.tasks)))
    job = FitJob(programs=others, tasks=tasks)
    model: Model = train_physics(data, [job], PhysicsFit(steps=steps))[0]
    if can_grow():  # as the models that ship have them
        few = {"min_data_in_leaf": LEAST_LEAF}
        forests = grow_on(data.features, others, tasks, TREES, few, BOTH)
        trees = Trees(model.needs.name, forests)
        model = Ensemble([Member(model=model), Member(model=trees, votes=TREE_VOTES)])
    save_model(folder / "others", model, Card(training_workloads=others.tasks))
    choice = choose(Platform(name=hidden), [folder])
    assert choice is not None
    return choice.folder, choice.head


def probe(
    data: PhysicsSet, measurer: ReplayMeasurer, start: Model, head: str, seconds: float
) -> None:
    """Has measured what the time suffices for, task by task in rounds."""
    place = {name: k for k, name in enumerate(data.programs.ids)}
    features = data.features
    offered = {name: measurer.programs(name) for name in data.programs.tasks}
    known: dict[str, list[int]] = {name: [] for name in offered}
    while measurer.simulated_secs < seconds and any(offered.values()):
        for task, programs in offered.items():
            if not programs or measurer.simulated_secs >= seconds:
                continue
            rows = np.array([place[program.id] for program in programs])
            before = features[known[task]] if known[task] else None
            speeds = start.speeds(features[rows], head)
            chosen = choose_probes(features[rows], speeds, PER_ROUND, before).tolist()
            measurer.measure([Candidate(program=programs[k]) for k in chosen])
            known[task] += rows[chosen].tolist()
            offered[task] = [p for k, p in enumerate(programs) if k not in set(chosen)]


def hide(args: argparse.Namespace, data: PhysicsSet, store: Store, hidden: str) -> dict[str, Any]:
    test = read_programs([store], platforms=(hidden,), split="test")
    with tempfile.TemporaryDirectory() as scratch:
        folder, head = nearest_model(data, hidden, args.steps, Path(scratch))
        with Store.open(Path(scratch) / STORE, create=True) as answers:
            measurer = ReplayMeasurer(store, hidden, journal=answers)
            seconds = 60 * args.minutes * args.builders
            probe(data, measurer, load_model(folder), head, seconds)
            probes = read_programs([answers], platforms=(hidden,))
        result = adapted(args, probes, test, folder, head)
    return {**result, "simulated_secs": round(measurer.simulated_secs, 1)}


def replayed(args: argparse.Namespace) -> None:
    with Store.open(args.data) as store:
        data = physics_set(read_programs([store], split="train"))
        result = {hidden: hide(args, data, store, hidden) for hidden in args.hide}
    print(json.dumps(result, indent=1))
    if not args.quick:
        machine = f"{machine_name()}-replayed"
        write_result("onboard", {"minutes": args.minutes, "hidden": result}, machine)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    real, simulated = verbs.add_parser("measured"), verbs.add_parser("replayed")
    real.add_argument("model", type=Path)
    real.add_argument("test", type=Path)
    real.add_argument("--start", nargs=2, metavar=("FOLDER", "HEAD"), default=None)
    simulated.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    simulated.add_argument("--hide", nargs="*", default=["emeraldrapids-2c", "emeraldrapids-16c"])
    simulated.add_argument("--minutes", type=float, default=15.0)
    simulated.add_argument("--builders", type=float, default=2.0, help="Cores that build and run.")
    simulated.add_argument("--steps", type=int, default=1200)
    for sub in (real, simulated):
        sub.add_argument("--seeds", type=int, default=3)
        sub.add_argument("--quick", action="store_true", help="Few steps, no file.")
    args = parser.parse_args()
    {"measured": measured, "replayed": replayed}[args.verb](args)


if __name__ == "__main__":
    main()
