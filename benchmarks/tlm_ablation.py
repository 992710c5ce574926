"""What each part of TLM is worth: small models that differ in one thing, judged by what they write.

    python benchmarks/tlm_ablation.py train [--variants ...] [--corpus STORE ...] [--steps 500]
    python benchmarks/tlm_ablation.py race [--tasks ...] [--seeds 2]
    python benchmarks/tlm_ablation.py report

`train` makes a model of each variant from `data/cpu` (one thread, bf16), under runs/tlm_ablation;
those that are there are kept. `race` has every model write ten programs for each task of
`test_tasks.json`, chosen by likelihood alone, with no ranker and nothing learnt; all of a task's
programs are measured by one farm in a mixed order, so that all are timed on the same minutes. A
row a task and seed is kept. `report`: speed of the likeliest, and of the best of ten, over the
best that anybody wrote for the task.

Without masks a model learns over the whole vocabulary, as the paper's does; what is raced are its
programs drawn with masks, and `legal` says which share it would write legal without them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT, add_rows, environment, provenance, read_rows, result_file
from tune_subgraphs import test_tasks

SCRIPT = "tlm_ablation"
WORK = ROOT / "runs" / SCRIPT
BASE = {"pretrain": "50", "tasks": "8", "rows": "10", "lr": "1.5e-3", "bf16": "true"}
WRITTEN = 10


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Settings of training beside the base's, and how the model is asked."""

    settings: Mapping[str, str] = field(default_factory=dict)
    corpus: bool = False
    masks: bool = True
    model: str = ""
    """Whose model it asks; its own if absent."""
    sampling: Mapping[str, Any] = field(default_factory=dict)


VARIANTS = {
    "speeds told": Variant(),
    "best only": Variant(settings={"stage": "best"}),
    "speeds told, then pairs": Variant(settings={"preference": "100"}),
    "best only, then pairs": Variant(settings={"stage": "best", "preference": "100"}),
    "no pre-training": Variant(settings={"pretrain": "0"}),
    "distilled search beside": Variant(corpus=True),
    "logits without counts": Variant(settings={"counts": "false"}),
    "learnt without masks": Variant(masks=False),
    "width 64, 2 layers": Variant(settings={"heads": "4", "width": "64", "layers": "2"}),
    "width 256, 6 layers": Variant(settings={"heads": "8", "width": "256", "layers": "6"}),
    "limits not corrected": Variant(model="speeds told", sampling={"corrected": False}),
    "temperature 0.7": Variant(model="speeds told", sampling={"temperature": 0.7}),
    "guidance 1": Variant(model="speeds told", sampling={"guidance": 1.0}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=("train", "child", "race", "report"))
    parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--corpus", nargs="*", type=Path, default=[])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--tasks", nargs="*")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    if options.stage == "train":
        train(options.variants, options.corpus, options.steps)
    if options.stage == "child":
        train_one(options.variants[0], options.corpus, options.steps)
    if options.stage == "race":
        race(options.tasks, options.seeds)
    if options.stage == "report":
        report()


# -- train -----------------------------------------------------------------------------------------


def folder_of(name: str) -> Path:
    return WORK / (VARIANTS[name].model or name).replace(", ", "-").replace(" ", "-")


def train(names: Iterable[str], corpora: list[Path], steps: int) -> None:
    """Each in a process of its own: one of them changes the network."""
    for name in names:
        variant = VARIANTS[name]
        if variant.model or (folder_of(name) / "config.json").exists():
            continue
        if variant.corpus and not corpora:
            print(f"{name}: left out, it needs --corpus", flush=True)
            continue
        command = [sys.executable, __file__, "child", "--variants", name, "--steps", str(steps)]
        if variant.corpus:
            command += ["--corpus", *map(str, corpora)]
        started = time.monotonic()
        one_thread = {**environment(), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=one_thread)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)


def train_one(name: str, corpora: list[Path], steps: int) -> None:
    from tensorese.records.store import Store
    from tensorese.training.recipes import tlm
    from tensorese.training.recipes.base import DataSelection, apply_settings, train_model

    variant = VARIANTS[name]
    if not variant.masks:
        tlm.TLMNetwork = _unmasked()  # type: ignore[misc]
    recipe = tlm.TLMRecipe.named("tlm", "default", DataSelection(fold=-1))
    settings = {**BASE, "steps": str(steps), **variant.settings}
    with Store.open(ROOT / "data" / "cpu") as store:
        train_model(
            apply_settings(recipe, settings),
            [store],
            folder_of(name),
            corpora=[Store.open(path) for path in corpora] if variant.corpus else (),
            command=f"benchmarks/{SCRIPT}.py train --variants '{name}' --steps {steps}",
            progress=lambda entry: print(f"{name}: {entry}", flush=True),
        )


def _unmasked() -> type[Any]:
    """A network whose answers compete with the whole vocabulary."""
    from torch import Tensor

    from tensorese.models.tlm import TLMNetwork

    class Unmasked(TLMNetwork):
        def _answers(self, x: Tensor, words: Tensor, options: Tensor) -> Tensor:
            return self._logits(x, words).log_softmax(-1)

    return Unmasked


# -- race ------------------------------------------------------------------------------------------


def race(names: list[str] | None, seeds: int) -> None:
    from tensorese.measure.tuning_farm import TuningFarm
    from tensorese.targets import Target

    path = result_file(SCRIPT, ".jsonl")
    done = {(row["task"], row["seed"]) for row in read_rows(path)} if path.exists() else set()
    target = Target.parse("host")
    tasks = test_tasks("llvm")
    with TuningFarm(target, platform=target.platform()) as farm:
        for name in names or list(tasks):
            for seed in range(seeds):
                if (name, seed) not in done:
                    row = raced(tasks[name], seed, target, farm)
                    about = provenance()
                    about = {key: about[key] for key in ("machine", "date", "commit")}
                    add_rows(path, [{"task": name, "seed": seed, **row, **about}])
                    print(f"{name} {seed}: {row['measured']} programs", flush=True)


def raced(task: Any, seed: int, target: Any, farm: Any) -> dict[str, Any]:
    from tensorese.identity import workload_of
    from tensorese.measure.base import Candidate
    from tensorese.search.contracts import TaskState
    from tensorese.space.space import task_space

    module = task.module()
    workload, platform = workload_of(module), target.platform()
    space = task_space(module, target, seed=0)
    by_variant, legal = {}, {}
    for name in VARIANTS:
        if (folder_of(name) / "config.json").exists():
            state = TaskState(workload, space, platform)
            by_variant[name], legal[name] = written(name, state, seed)
    by_variant["random"] = drawn_at_random(TaskState(workload, space, platform), seed)
    unique = {p.program.id: p.program for each in by_variant.values() for p in each}
    order = np.random.default_rng(seed).permutation(sorted(unique))
    measured = farm.measure([Candidate(program=unique[key], origin=SCRIPT) for key in order])
    latency = {key: m.latency for key, m in zip(order, measured, strict=True)}
    times = {
        name: [_number(latency[p.program.id]) for p in each] for name, each in by_variant.items()
    }
    return {"measured": len(unique), "times": times, "legal": legal}


def _number(latency: float) -> float | None:
    """None of a program that failed."""
    return latency if math.isfinite(latency) and latency > 0 else None


def written(name: str, state: Any, seed: int) -> tuple[list[Any], float]:
    """Ten programs, the likeliest first; and the share that would be legal without masks."""
    from tensorese.models.base import load_model
    from tensorese.models.tlm import TLM
    from tensorese.search.proposers.tlm import TLMProposer, WritingConfig

    model = load_model(folder_of(name))
    assert isinstance(model, TLM)
    watch = _watched(**VARIANTS[name].sampling)
    proposer = TLMProposer(None, seed, model=model, config=WritingConfig(sampling=watch))
    (proposals,) = proposer.propose([state], WRITTEN)
    return proposals, watch.legal_share()


def _watched(**settings: Any) -> Any:
    """A sampling that notes how much of the vocabulary's probability the masks leave."""
    import torch

    from tensorese.models.tlm import Sampling

    masses: list[torch.Tensor] = []

    @dataclass(frozen=True, kw_only=True)
    class Watched(Sampling):
        def draw(self, logits_PRA: Any, turns: Any, generator: Any) -> tuple[Any, Any]:
            mass = (logits_PRA.softmax(-1) * turns.allowed_PRA).sum(-1).clamp(min=1e-12).log()
            masses.append(torch.where(turns.asked_PR, mass, 0.0).double())
            return super().draw(logits_PRA, turns, generator)

        def legal_share(self) -> float:
            # Drawn with masks, a program stands for as many as its questions' masses multiply to.
            return float(torch.stack(masses).sum(0).exp().mean())

    return Watched(**settings)


def drawn_at_random(state: Any, seed: int) -> list[Any]:
    from tensorese.search.proposers.random_rows import random_proposals
    from tensorese.search.proposers.shares import sketch_shares

    rng = np.random.default_rng(seed)
    return list(random_proposals(state, WRITTEN, sketch_shares(state), rng, []))


# -- report ----------------------------------------------------------------------------------------


def report() -> None:
    path = result_file(SCRIPT, ".jsonl")
    rows = read_rows(path)
    tasks = sorted({row["task"] for row in rows})
    lines = [
        "# What each part of TLM is worth",
        "",
        f"{len(tasks)} test tasks, {len({row['seed'] for row in rows})} draws: speed of the "
        "likeliest program, and of the best of ten, over the best that anybody wrote for the task, "
        "geometric mean [95 % interval over tasks]; share of programs legal without masks.",
        "",
        "| variant | width x layers | first | best of ten | legal without masks |",
        "|---|---:|---:|---:|---:|",
    ]
    best = {task: min(_all_times(rows, task)) for task in tasks}
    names = [name for name in [*VARIANTS, "random"] if name in rows[0]["times"]]
    for name in names:
        cells = [_share(rows, best, name, n) for n in (1, WRITTEN)]
        legal = [row["legal"][name] for row in rows if name in row["legal"]]
        without = f"{100 * statistics.fmean(legal):.1f} %" if legal else ""
        lines.append(f"| {name} | {_size(name)} | {cells[0]} | {cells[1]} | {without} |")
    text = "\n".join([*lines, ""])
    path.with_suffix(".md").write_text(text)
    print(text)


def _all_times(rows: list[dict[str, Any]], task: str) -> list[float]:
    mine = [row for row in rows if row["task"] == task]
    return [t for row in mine for each in row["times"].values() for t in each if t]


def _share(rows: list[dict[str, Any]], best: dict[str, float], name: str, n: int) -> str:
    """A task whose programs all failed counts as 20 times slower than the best."""
    logs: dict[str, list[float]] = {}
    for row in rows:
        valid = [t for t in row["times"][name][:n] if t]
        ratio = best[row["task"]] / min(valid) if valid else 0.05
        logs.setdefault(row["task"], []).append(math.log(ratio))
    each = np.array([statistics.fmean(values) for values in logs.values()])
    rng = np.random.default_rng(0)
    draws = rng.choice(each, (2000, len(each))).mean(1)
    low, high = np.exp(np.quantile(draws, (0.025, 0.975)))
    return f"{math.exp(each.mean()):.3f} [{low:.2f}, {high:.2f}]"


def _size(name: str) -> str:
    config = folder_of(name) / "config.json" if name in VARIANTS else Path(os.devnull)
    if not config.is_file():
        return ""
    network = json.loads(config.read_text())["section"]["network"]
    return f"{network['width']} x {network['layers']}"


if __name__ == "__main__":
    main()
