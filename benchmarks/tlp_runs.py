"""Runs behind the TLP tables: one job trains a handful of models at once and judges each.

A job is plain data; its rows go to a JSON-lines file, keyed, so that a stopped stage goes on
where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tensorese.evaluation.judge import MIN_RECORDS, judge_programs, judged_index
from tensorese.evaluation.metrics import TaskResult
from tensorese.evaluation.splits import by_workload, check_disjoint
from tensorese.features.matrix import Encoder, MatrixSpec, paper_spec
from tensorese.features.programs import Encoded, ProgramSet, encode_programs, read_programs
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.predict import predict_outputs
from tensorese.models.tlp import TLP, TLPConfig
from tensorese.models.trunk import TrunkConfig
from tensorese.records.store import Store
from tensorese.training.groups import GroupConfig, Groups
from tensorese.training.stacked import ManyTrainer, keep_labels
from tensorese.training.trainer import TrainConfig, Trainer
from tlp_bank import packed, save_bank

STORES = {"k80": "ansor", "v100": "ansor", "mi50": "ansor", "a100": "metaschedule"}
PLATFORMS = tuple(STORES)
DRAWS = 16


@dataclass(frozen=True, kw_only=True)
class Job:
    """One architecture and recipe; a model per (fold, seed)."""

    table: str
    system: str
    platforms: tuple[str, ...]
    """Trained on; the first is the target where labels are cut."""
    judged: tuple[str, ...] = ()
    folds: tuple[int, ...] = (0, 1, 2)
    seeds: tuple[int, ...] = (0,)
    trunk: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    labels: int = 0
    """Labels of the target that are kept; 0: all."""
    share: float = 1.0
    """Share of every task's training records that is kept (data size)."""
    steps: int = 0
    """At least so many steps: more epochs where labels are few."""
    members: int = 1
    physics_members: int = 0
    """Networks in one model: their mean less `doubt` times their disagreement is the score."""
    doubt: float = 0.0
    jitter: float = 0.0
    """Of the model that is made of the networks; judged where `jitters` or `tlp_mix` say so."""
    doubts: tuple[float, ...] = ()
    """Other doubts the same models are also judged with."""
    jitters: tuple[float, ...] = ()
    """Scales of lots (`models.tlp.lots`) that they are also judged with, over many draws."""
    fine_tune: bool = False
    """First the helpers without the target, then the target alone from there."""
    brief: bool = False
    """Judged in a hurry: no thinned figures, pairs from fewer programs."""
    bank: str = ""
    """Not judged: every network's held-out scores are kept under this name (`tlp_bank`)."""

    def settings(self) -> dict[str, Any]:
        skip = (
            "table",
            "system",
            "judged",
            "folds",
            "seeds",
            "doubts",
            "jitter",
            "jitters",
            "brief",
            "bank",
        )
        return {k: v for k, v in asdict(self).items() if k not in skip}


def row_key(row: dict[str, Any]) -> str:
    parts = [row[k] for k in ("table", "system", "platform", "fold", "seed", "settings")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def read_rows(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Every row once; the last of equal keys counts."""
    rows: dict[str, dict[str, Any]] = {}
    for folder in folders:
        for path in sorted(folder.glob("tlp_rows_*.jsonl")):
            for line in path.read_text().splitlines():
                if line.strip():
                    row = json.loads(line)
                    rows[row_key(row)] = row
    return list(rows.values())


# ---- data


@lru_cache(maxsize=6)
def programs_of(data: Path, platforms: tuple[str, ...]) -> ProgramSet:
    stores = [Store.open(data / name) for name in sorted({STORES[p] for p in platforms})]
    return read_programs(stores, platforms=platforms)


@lru_cache(maxsize=1)
def folds_of(data: Path) -> dict[str, int]:
    """Folds over the workloads of all platforms together: a workload has one fold everywhere."""
    workloads = {}
    for name in sorted(set(STORES.values())):
        workloads.update(Store.open(data / name).workloads())
    return by_workload(workloads)


@lru_cache(maxsize=8)
def encoded_of(data: Path, platforms: tuple[str, ...], spec: MatrixSpec) -> Encoded:
    return encode_programs(programs_of(data, platforms), Encoder(spec))


def spec_of(programs: ProgramSet, job: Job) -> MatrixSpec:
    if job.spec.get("preset") == "paper":
        return paper_spec("gpu")
    changes = {k: v for k, v in job.spec.items() if k != "preset"}
    return programs.spec(**changes)


def task_sides(data: Path, programs: ProgramSet, fold: int) -> tuple[list[int], list[int]]:
    folds = folds_of(data)
    place = np.array([folds[name] for name in programs.tasks])
    train, test = np.flatnonzero(place != fold), np.flatnonzero(place == fold)
    check_disjoint(
        [programs.tasks[k] for k in train], [programs.tasks[k] for k in test], programs.workloads
    )
    return train.tolist(), test.tolist()


def thin_out(programs: ProgramSet, tasks: Sequence[int], share: float, seed: int) -> ProgramSet:
    if share >= 1.0:
        return programs
    keep = np.random.default_rng(seed).random(len(programs)) < share
    latency, failed = programs.latency.copy(), programs.failed.copy()
    drop = ~keep & np.isin(programs.task, np.asarray(tasks))
    latency[drop], failed[drop] = np.nan, False
    return replace(programs, latency=latency, failed=failed)


# ---- one job


def run_job(job: Job, data: Path, device: str, out: Path) -> list[dict[str, Any]]:
    started = time.monotonic()
    torch.set_float32_matmul_precision("high")
    programs = programs_of(data, job.platforms)
    spec = spec_of(programs, job)
    encoded = encoded_of(data, job.platforms, spec)
    config = TLPConfig(
        trunk=TrunkConfig(**job.trunk),
        spec=spec,
        members=job.members,
        physics_members=job.physics_members,
        doubt=job.doubt,
        jitter=job.jitter,
    )
    train = TrainConfig(**job.train, groups=GroupConfig(**job.groups))
    runs: list[tuple[ProgramSet, list[int], int]] = []
    tests: list[tuple[int, int, list[int]]] = []
    for fold in job.folds:
        for seed in job.seeds:
            tasks, held = task_sides(data, programs, fold)
            cut = thin_out(programs, tasks, job.share, seed)
            if job.labels:
                cut = keep_labels(cut, job.platforms[0], tasks, job.labels, seed=seed)
            runs.append((cut, tasks, seed))
            tests.append((fold, seed, held))

    train = _long_enough(train, runs[0], job.steps)

    def build(seed: int) -> TLP:
        torch.manual_seed(seed)
        kind = TLP if len(job.platforms) == 1 else MTLTLP
        return kind(config, job.platforms)

    score, steps, size = _train(job, build, encoded, runs, train, device)
    seconds = time.monotonic() - started
    common = {
        "table": job.table,
        "settings": job.settings(),
        "epochs": train.epochs,
        "steps": steps,
        "parameters": size,
        "seconds_of_all": round(seconds, 1),
        "models": len(runs),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }
    asked = build(0)
    rows = []
    banked: dict[str, Any] = {}
    for k, (fold, seed, held) in enumerate(tests):
        for platform in job.judged or job.platforms:
            index = judged_index(programs, platform, held)
            said = score(k, index)[:, programs.head(platform)]
            if job.bank:
                banked |= packed(f"{platform}/{fold}/{seed}", asked.each(said).numpy())
                continue
            for doubt in (job.doubt, *job.doubts):
                extra = "" if doubt == job.doubt else f", doubt {doubt:g}"
                where = {"platform": platform, "fold": fold, "seed": seed}
                scores = asked.score(said, doubt).numpy()
                found = judge_scores(programs, platform, held, index, scores, brief=job.brief)
                rows.append({**common, "system": job.system + extra, **where, **found})
            for jitter in job.jitters:
                figures = shaken_figures(programs, platform, index, asked.score(said), jitter)
                found = {"tasks": figures, "small": {}, "thin": {}}
                system = f"{job.system}, jitter {jitter:g}"
                rows.append({**common, "system": system, **where, **found})
    if job.bank:
        save_bank(out, job.bank, {**common, "system": job.system}, banked)
    return rows


def _long_enough(
    train: TrainConfig, run: tuple[ProgramSet, list[int], int], steps: int
) -> TrainConfig:
    programs, tasks, seed = run
    groups = Groups(programs, tasks, train.groups, seed=seed, failed=train.failed_weight > 0)
    return replace(train, epochs=max(train.epochs, -(-steps // groups.per_epoch)))


def judge_one(programs: ProgramSet, platform: str, held: list[int], score: Any) -> dict[str, Any]:
    """As `judge_scores`, of a function from program indices to scores."""
    index = judged_index(programs, platform, held)
    return judge_scores(programs, platform, held, index, np.asarray(score(index)))


def judge_scores(
    programs: ProgramSet,
    platform: str,
    held: list[int],
    index: Any,
    scores: Any,
    *,
    brief: bool = False,
) -> dict[str, Any]:
    """Per task figures of one model on its held-out tasks, full and thinned."""
    verdict = judge_programs(programs, platform, index, scores, pairs=300 if brief else 2000)
    if brief:
        return {"tasks": {r.task: _figures(r) for r in verdict.tasks}, "small": {}, "thin": {}}
    thin = np.isin(index, judged_index(programs, platform, held, thin=True))
    thinned = judge_programs(programs, platform, index[thin], scores[thin])
    return {
        "tasks": {r.task: _figures(r) for r in verdict.tasks},
        "small": {r.task: _figures(r) for r in verdict.small},
        "thin": {r.task: _figures(r) for r in thinned.tasks},
    }


def shaken_figures(
    programs: ProgramSet, platform: str, index: Any, scores: Any, jitter: float
) -> dict[str, list[float]]:
    """As `_figures` of scores with Gumbel numbers added, ratios averaged over draws.

    Not judged: pairs and random order, which the plain rows have.
    """
    given = np.asarray(scores, dtype=np.float64)
    latency = programs.latency[index, programs.head(platform)]
    task = programs.task[index]
    rng = np.random.default_rng(0)
    out = {}
    for k in np.unique(task):
        y = latency[task == k]
        if len(y) < MIN_RECORDS:
            continue
        ratio = y.min() / y
        drawn = given[task == k] + jitter * rng.gumbel(size=(DRAWS, len(y)))
        first = ratio[np.argsort(-drawn, axis=1)[:, :10]]
        tops = [y.min() / first[:, :count].max(1).mean() for count in (1, 5, 10)]
        figures = [len(y), y.min(), *tops, 0.0, 0.0, 0.0, first[:, :5].mean()]
        out[programs.tasks[k]] = [float(f"{x:.6g}") for x in figures]
    return out


def _figures(result: TaskResult) -> list[float]:
    """n, best, latency of top 1 / 5 / 10, pairwise, random top 1 / 5, mean ratio of the top 5."""
    chosen = [result.chosen[k] for k in (1, 5, 10)]
    random = [result.random[k] for k in (1, 5)]
    numbers = [result.best, *chosen, result.pairwise, *random, result.steady]
    return [result.n, *(float(f"{x:.6g}") for x in numbers)]


def _train(
    job: Job, build: Any, encoded: Encoded, runs: Any, train: TrainConfig, device: str
) -> tuple[Any, int, int]:
    size = sum(p.numel() for p in build(0).parameters())
    if job.trunk.get("backbone") == "lstm":
        return _train_singly(build, encoded, runs, train, device, size)
    graph = "TLP_NO_GRAPH" not in os.environ
    many = ManyTrainer(build, encoded, _helpers(job, runs), train, device, graph=graph)
    many.fit()
    steps = many.steps
    if job.fine_tune:
        start = [many.weights(k) for k in range(len(runs))]
        later = replace(train, lr=train.lr * 0.3)
        many = ManyTrainer(build, encoded, _targets(runs), later, device, start, graph)
        many.fit()
        steps += many.steps

    def score(k: int, index: np.ndarray[Any, Any]) -> torch.Tensor:
        return many.outputs(k, torch.from_numpy(index))

    return score, steps, size


def _helpers(job: Job, runs: Any) -> Any:
    """For fine-tuning: the helpers' labels, the target's head trained as one of theirs."""
    if not job.fine_tune:
        return runs
    out = []
    for programs, tasks, seed in runs:
        latency, failed = programs.latency.copy(), programs.failed.copy()
        # The target's head follows the first helper, so that it starts from something.
        latency[:, 0], failed[:, 0] = latency[:, 1], failed[:, 1]
        out.append((replace(programs, latency=latency, failed=failed), tasks, seed))
    return out


def _targets(runs: Any) -> Any:
    out = []
    for programs, tasks, seed in runs:
        latency, failed = programs.latency.copy(), programs.failed.copy()
        latency[:, 1:], failed[:, 1:] = np.nan, False
        out.append((replace(programs, latency=latency, failed=failed), tasks, seed))
    return out


def _train_singly(
    build: Any, encoded: Encoded, runs: Any, train: TrainConfig, device: str, size: int
) -> tuple[Any, int, int]:
    """An LSTM cannot be stacked: one model after the other."""
    trainers = []
    for programs, tasks, seed in runs:
        trainer = Trainer(
            build(seed),
            programs,
            encoded,
            train_tasks=tasks,
            config=replace(train, seed=seed),
            device=device,
        )
        trainer.fit()
        trainers.append(trainer)

    def score(k: int, index: np.ndarray[Any, Any]) -> torch.Tensor:
        chosen = torch.from_numpy(index).to(trainers[k].device)
        return predict_outputs(trainers[k].model, trainers[k].batch, chosen).cpu()

    return score, trainers[0].steps, size
