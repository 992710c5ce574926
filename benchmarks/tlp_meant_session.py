"""One command of `tlp_meant.py`: which rows are there, what is left to train, and for how long."""

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

from common import add_rows, provenance, read_rows, result_file
from tensorese.evaluation.judge import judge_scores
from tensorese.training.labels import only
from tensorese.training.physics import FitJob, physics_set, train_physics
from tensorese.training.recipes.physics import PhysicsRecipe
from tlp_meant_report import STORES
from tlp_meant_runs import Data, Run, System, Weights, figures, rows_of, train


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
