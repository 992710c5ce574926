"""TLP as its paper meant it, on our own data: what the language of schedules alone can rank.

    python benchmarks/tlp_meant.py single|mtl|losses|push [--platforms A,B] [--systems X,Y]
                                   [--seeds N] [--stack N] [--limit SECONDS] [--rows FILE]
    python benchmarks/tlp_meant.py report [FILE ...]

`single`: the published network and training, language only, physics only, both, on each platform.
`mtl`: 500 and 5,000 labels of a CPU, alone and beside one to four other CPUs' labels, against
fine-tuning, pre-training without labels and a network on hardware features. `losses`: rank and
squared error, attention and LSTM, three crops. `push`: configurations judged on validation tasks;
the one that is best there is trained on all training tasks with three seeds and judged on test
rows. Rows are added as they come and are never trained again; `--limit` starts nothing new after so
many seconds. Neither TVM nor a device is needed; `tlp_meant_device.sh` runs it on a lent machine.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import RESULTS, add_rows, provenance, read_rows, result_file
from tensorese.evaluation.judge import judge_scores
from tensorese.features.programs import ProgramSet
from tensorese.training.labels import only
from tensorese.training.physics import FitJob, physics_set, train_physics
from tensorese.training.recipes.physics import PhysicsRecipe
from tlp_meant_report import COUNTS, CPUS, STORES, report
from tlp_meant_runs import Data, Run, System, Weights, figures, pre_train, rows_of, train

MAKERS = {name: name[:5] for name in CPUS}
PER_TASK = 25
"""Labels of a task where only few are kept: a task is measured as in a short run, or not at all."""
MTL_STEPS = 2400
PHYSICS = System(name="physics only")
"""Networks on hardware features as `tensorese train physics` makes them."""

SINGLE = (
    System(name="published", paper=True),
    System(name="published, nothing cropped", paper=True, crop="67x50"),
    System(name="published, 200 epochs", paper=True, fit={"epochs": 200, "patience": 200}),
    System(name="language only"),
    System(name="both", beside=True),
)
LOSSES = (
    System(name="attention, rank", paper=True),
    System(name="attention, squared error", paper=True, fit={"loss": "mse"}),
    System(name="LSTM, rank", paper=True, config={"mixer": "lstm"}),
    System(name="LSTM, squared error", paper=True, config={"mixer": "lstm"}, fit={"loss": "mse"}),
    System(name="attention, rank, 16x16", paper=True, crop="16x16"),
    System(name="attention, rank, 67x50", paper=True, crop="67x50"),
)
WIDE = {"width": 128, "heads": 8, "layers": 2}
WIDER = {"width": 256, "heads": 8, "layers": 2}
SPEEDS = {"loss": "mse", "octave_weight": 10.0, "regret_weight": 0.0}
ALONE = (
    System(name="width 64"),
    System(name="width 128, 2 layers", config=WIDE),
    System(name="width 128, 4 layers", config={**WIDE, "layers": 4}),
    System(name="width 256, 2 layers", config=WIDER),
    System(name="width 128, 2 layers, speeds", config=WIDE, fit=SPEEDS),
    System(name="width 128, 2 layers, 200 epochs", config=WIDE, fit={"epochs": 200}),
    System(name="width 128, 2 layers, half the tasks", config=WIDE, share=0.5),
    System(name="width 128, 2 layers, hidden decisions first", config=WIDE, hidden=3000),
)
TOGETHER = (
    System(name="all platforms, width 128, 2 layers", config=WIDE),
    System(name="all platforms, width 256, 2 layers", config=WIDER),
    System(name="all platforms, width 128, 2 layers, speeds", config=WIDE, fit=SPEEDS),
    System(
        name="all platforms, width 128, 2 layers, hidden decisions first", config=WIDE, hidden=3000
    ),
)
"""Of `push`, twelve in all."""


class Rows:
    """The file of a machine: what is there is not trained again."""

    def __init__(self, path: Path, kept: bool = True) -> None:
        self.path, self.kept = path, kept
        self.done = {self._key(row) for row in read_rows(path)} if kept else set()

    @staticmethod
    def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        names = ("stage", "platform", "system", "seed", "labels")
        return tuple(row.get(name) for name in names)

    def missing(self, run: Run) -> bool:
        return any(self._key({**run.key, "platform": p}) not in self.done for p in run.judged)

    def add(self, row: dict[str, Any]) -> None:
        if self._key(row) in self.done:
            return
        self.done.add(self._key(row))
        shown = {k: v for k, v in row.items() if k not in ("ratios", "curve")}
        print(json.dumps(shown), flush=True)
        if self.kept:
            add_rows(self.path, [{**row, **provenance()}])


class Session:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.began = args, time.monotonic()
        self.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
        # The published network is float32: TF32 lets tensor cores multiply it.
        torch.backends.cuda.matmul.allow_tf32 = True
        machine = args.machine or ("h200" if self.device == "cuda" else "")
        path = args.rows or result_file("tlp_meant", ".jsonl", machine)
        self.rows = Rows(path, kept=not args.quick)
        self.platforms = args.platforms.split(",") if args.platforms else list(STORES)
        self.seeds = range(args.seeds)
        self._data: dict[str, Data] = {}

    def data(self, store: str) -> Data:
        if store not in self._data:
            self._data[store] = Data(store, self.device, 10 if self.args.quick else 1)
        return self._data[store]

    def here(self, store: str) -> list[str]:
        return [name for name in self.platforms if STORES[name] == store]

    def stores(self) -> list[str]:
        return list(dict.fromkeys(STORES[name] for name in self.platforms))

    def wanted(self, system: System) -> bool:
        return not self.args.systems or system.name in self.args.systems.split(";")

    def late(self) -> bool:
        return time.monotonic() - self.began > self.args.limit

    def run(
        self, data: Data, system: System, runs: Sequence[Run], *, test: bool, again: bool = False
    ) -> list[Weights]:
        """Trains what no row has yet, or `again`, so many side by side; gives their weights."""
        weights: list[Weights] = []
        if self.args.quick:
            system = replace(
                system, fit={**system.fit, "epochs": 1}, steps=min(system.steps, 1), hidden=0
            )
        left = [run for run in runs if again or self.rows.missing(run)]
        while left:
            if self.late():
                print(f"out of time: {len(left)} x {system.name} are left", flush=True)
                break
            started = time.monotonic()
            chunk, left = left[: self.args.stack], left[self.args.stack :]
            trained = train(data, system, chunk)
            for row in rows_of(data, trained, test=test):
                self.rows.add(row)
            weights += [one.weights for one in trained]
            print(f"{len(chunk)} x {system.name}: {time.monotonic() - started:.0f} s", flush=True)
        return weights


# ---- single, losses, push -----------------------------------------------------------------------


def alone_runs(
    data: Data, stage: str, system: System, platforms: Sequence[str], seeds: Sequence[int],
    tasks: Sequence[int],
) -> list[Run]:  # fmt: skip
    """One network a platform and seed, of its own labels."""
    kept = tuple(tasks[:: round(1 / system.share)])
    return [
        Run(
            key={"stage": stage, "system": system.name, "seed": seed},
            labels=only(data.programs, platform),
            tasks=kept,
            judged=(platform,),
            seed=seed,
        )
        for seed in seeds
        for platform in platforms
    ]


def together_runs(
    data: Data, stage: str, system: System, platforms: Sequence[str], seeds: Sequence[int],
    tasks: Sequence[int],
) -> list[Run]:  # fmt: skip
    """One network a seed, of all platforms' labels."""
    return [
        Run(
            key={"stage": stage, "system": system.name, "seed": seed},
            labels=data.programs,
            tasks=tuple(tasks),
            judged=tuple(platforms),
            seed=seed,
        )
        for seed in seeds
    ]


def single(session: Session) -> None:
    for store in session.stores():
        data = session.data(store)
        for system in filter(session.wanted, SINGLE):
            runs = alone_runs(
                data, "single", system, session.here(store), session.seeds, data.train
            )
            session.run(data, system, runs, test=True)
        if session.wanted(PHYSICS):
            runs = alone_runs(
                data, "single", PHYSICS, session.here(store), session.seeds, data.train
            )
            physics_only(session, data, runs)


def losses(session: Session) -> None:
    for store in session.stores():
        data = session.data(store)
        here = [name for name in session.here(store) if name in ("znver4-2c", "h200")]
        for system in filter(session.wanted, LOSSES):
            runs = alone_runs(data, "losses", system, here, session.seeds, data.train)
            session.run(data, system, runs, test=True)


def physics_only(session: Session, data: Data, runs: Sequence[Run]) -> None:
    fit = PhysicsRecipe().fit
    fit = replace(fit, steps=2) if session.args.quick else fit
    runs = [run for run in runs if session.rows.missing(run)]
    if not runs or session.late():
        return
    began = time.monotonic()
    features = physics_set(data.programs)
    jobs = [FitJob(programs=run.labels, tasks=run.tasks, seed=run.seed) for run in runs]
    models = train_physics(features, jobs, fit, session.device)
    spent = round((time.monotonic() - began) / len(runs), 1)
    inputs = models[0].read_all(data.test)
    for run, model in zip(runs, models, strict=True):
        [platform] = run.judged
        scores = model.rank(inputs, platform).astype(np.float64)
        found = judge_scores(data.test, platform, scores, range(len(data.test.tasks)))
        row = {**run.key, "platform": platform, "store": data.name, "seconds": spent}
        session.rows.add({**row, "side_by_side": len(runs), **figures(found)})


def push(session: Session) -> None:
    for store in session.stores():
        data, here = session.data(store), session.here(store)
        for system in filter(session.wanted, ALONE):
            runs = alone_runs(data, "push", system, here, [0], data.train)
            session.run(data, system, runs, test=False)
        for system in filter(session.wanted, TOGETHER if store == "cpu" else ()):
            runs = together_runs(data, "push", system, here, [0], data.train)
            session.run(data, system, runs, test=False)
        chosen = best_pushed(session, store)
        if chosen is None or session.args.systems:
            continue
        # The last weights: there is no task left to choose an epoch on.
        final = replace(chosen, name=f"chosen: {chosen.name}")
        stage, tasks = "chosen", data.all_tasks
        if chosen in TOGETHER:
            runs = together_runs(data, stage, final, here, session.seeds, tasks)
        else:
            runs = alone_runs(data, stage, final, here, session.seeds, tasks)
        session.run(data, final, runs, test=True)


def best_pushed(session: Session, store: str) -> System | None:
    """By validation tasks alone, the mean of top-1 and top-5 over the store's platforms."""
    marks: list[float] = []
    platforms = [name for name in STORES if STORES[name] == store]
    pushed = [row for row in read_rows(session.rows.path) if row["stage"] == "push"]
    systems = (*ALONE, *(TOGETHER if store == "cpu" else ()))
    for system in systems:
        said = [
            r["validation"] for r in pushed if r["system"] == system.name and r["store"] == store
        ]
        if len(said) < len(platforms):
            print(f"{store}: {system.name} lacks validation rows, nothing is chosen yet")
            return None
        marks.append(float(np.mean([[v["top1"], v["top5"]] for v in said])))
    return systems[int(np.argmax(marks))]


# ---- mtl ----------------------------------------------------------------------------------------


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    stages = {"single": single, "mtl": mtl, "losses": losses, "push": push}
    parser.add_argument("stage", choices=[*stages, "report"])
    parser.add_argument("files", nargs="*", type=Path, help="report: rows; all of ours if none.")
    parser.add_argument("--platforms", default="", help="Some of them, by name.")
    parser.add_argument("--systems", default="", help="Some of them, by name; between semicolons.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--stack", type=int, default=15, help="Networks side by side on a GPU.")
    parser.add_argument("--limit", type=float, default=float("inf"), help="Seconds.")
    parser.add_argument("--published", action="store_true", help="mtl: the published network.")
    parser.add_argument("--device", default="", help="cpu or cuda; what there is if empty.")
    parser.add_argument("--machine", default="", help="Of the rows: h200.")
    parser.add_argument("--rows", type=Path, help="The file of rows, where it is another one.")
    parser.add_argument("--quick", action="store_true", help="One epoch, few tasks; no file.")
    args = parser.parse_args()
    if args.stage == "report":
        files = args.files or sorted((RESULTS / "tlp_meant").glob("*.jsonl"))
        report([row for path in files for row in read_rows(path)])
        return
    unknown = set(args.platforms.split(",")) - {"", *STORES}
    if unknown:
        parser.error(f"--platforms are of {', '.join(STORES)}, but got {', '.join(unknown)}")
    stages[args.stage](Session(args))


if __name__ == "__main__":
    main()
