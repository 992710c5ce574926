"""What each part of TLM is worth: small models that differ in one thing, judged by what they write.

    python benchmarks/tlm_ablation.py train [--variants ...] [--seeds 0 1] [--corpus STORE ...]
    python benchmarks/tlm_ablation.py judge [--variants ...] [--seeds 0 1] [--measure]
    python benchmarks/tlm_ablation.py report

`train` makes a model of each variant from `data/cpu` (one thread, bf16, the same steps for all),
under runs/tlm_ablation; those that are there are kept, those that miss a corpus are left out.

`judge` has each write for the tasks of `test_tasks.json`; a row a variant and seed is kept. No
judge has noise of timing: how much of what is drawn TVM accepts, and how much of that is distinct;
what the shipped ranker of `emeraldrapids-2c` says of the ten likeliest programs, over the best
that search finds under it; and how well the model's likelihood orders the measured programs of all
test tasks (top-1 and top-5, by replay). A model that learnt from what this ranker scored is
marked. `--measure` times the ten programs of every variant here, in one mixed order a task.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT, add_rows, environment, provenance, read_rows, result_file
from tune_subgraphs import TestTask, test_tasks

SCRIPT = "tlm_ablation"
WORK = ROOT / "runs" / SCRIPT
BASE = {"heads": "4", "width": "96", "layers": "3", "tasks": "4", "rows": "8"}
BASE |= {"lr": "1.5e-3", "bf16": "true"}
JUDGE = "emeraldrapids-2c"
DRAWN, WRITTEN = 64, 10
"""Programs drawn of a sketch; those that are judged."""
BOUNDS = ("search under the judge", "random")
"""What is judged beside the variants."""
PLAIN, PAIRS = (0.2, 0.8, 0.0), (0.2, 0.55, 0.25)
"""Shares of the steps: pre-training, fine-tuning, pairs."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """How a model is trained beside the base's settings, and how it is asked."""

    settings: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[float, float, float] = PLAIN
    corpus: bool = False
    model: str = ""
    """Whose model it asks; its own if absent."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    wished: bool = True


VARIANTS = {
    "speeds told": Variant(),
    "best only": Variant(settings={"stage": "best"}),
    "speeds told, then pairs": Variant(stages=PAIRS),
    "best only, then pairs": Variant(settings={"stage": "best"}, stages=PAIRS),
    "no pre-training": Variant(stages=(0.0, 1.0, 0.0)),
    "distilled search beside": Variant(corpus=True),
    "without counts": Variant(settings={"counts": "false"}),
    "atomic numbers, without counts": Variant(settings={"counts": "false", "atomic": "true"}),
    "masks off": Variant(settings={"masked": "false"}, sampling={"masked": False}),
    "width 48, 2 layers": Variant(settings={"width": "48", "layers": "2"}),
    "width 160, 4 layers": Variant(settings={"width": "160", "layers": "4"}),
    "masks off in writing alone": Variant(model="speeds told", sampling={"masked": False}),
    "limits not corrected": Variant(model="speeds told", sampling={"corrected": False}),
    "speed not asked for": Variant(model="speeds told", wished=False),
    "temperature 0.7": Variant(model="speeds told", sampling={"temperature": 0.7}),
    "guidance 1": Variant(model="speeds told", sampling={"guidance": 1.0}),
    "what ships": Variant(model="tlm-cpu", corpus=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=("train", "child", "judge", "report"))
    parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--corpus", nargs="*", type=Path, default=[])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args()
    if options.stage == "train":
        train(options.variants, options.seeds, options.corpus, options.steps)
    if options.stage == "child":
        train_one(options.variants[0], options.seeds[0], options.corpus, options.steps)
    if options.stage == "judge":
        judge(options.variants, options.seeds)
        if options.measure:
            measure(options.variants, options.seeds)
    if options.stage == "report":
        report()


# -- train -----------------------------------------------------------------------------------------


def folder_of(name: str, seed: int) -> Path:
    """Of its own training, of the variant whose model it asks, or what ships."""
    model = VARIANTS[name].model or name
    if model not in VARIANTS:
        from tensorese.models.catalog import SHIPPED

        return SHIPPED / model
    return WORK / f"{model.replace(', ', '-').replace(' ', '-')}-{seed}"


def train(names: Iterable[str], seeds: Iterable[int], corpora: list[Path], steps: int) -> None:
    """Each in a process of its own, one after the other."""
    for seed in seeds:
        for name in names:
            variant = VARIANTS[name]
            if variant.model or (folder_of(name, seed) / "config.json").exists():
                continue
            if variant.corpus and not corpora:
                print(f"{name}: left out, it needs --corpus", flush=True)
                continue
            command = [sys.executable, __file__, "child", "--variants", name]
            command += ["--seeds", str(seed), "--steps", str(steps)]
            if variant.corpus:
                command += ["--corpus", *map(str, corpora)]
            started = time.monotonic()
            one_thread = {**environment(), "OMP_NUM_THREADS": "1"}
            subprocess.run(command, check=True, env=one_thread)
            print(f"{name} {seed}: {time.monotonic() - started:.0f} s", flush=True)


def train_one(name: str, seed: int, corpora: list[Path], steps: int) -> None:
    from tensorese.records.store import Store
    from tensorese.training.recipes.base import DataSelection, apply_settings, train_model
    from tensorese.training.recipes.tlm import TLMRecipe

    variant = VARIANTS[name]
    recipe = TLMRecipe.named("tlm", "default", DataSelection(fold=-1))
    stages = zip(("pretrain", "steps", "preference"), variant.stages, strict=True)
    each = {stage: str(round(share * steps)) for stage, share in stages}
    with Store.open(ROOT / "data" / "cpu") as store:
        train_model(
            apply_settings(recipe, {**BASE, **each, **variant.settings, "seed": str(seed)}),
            [store],
            folder_of(name, seed),
            corpora=[Store.open(path) for path in corpora] if variant.corpus else (),
            command=f"benchmarks/{SCRIPT}.py train --variants '{name}' --steps {steps}",
            progress=lambda entry: print(f"{name} {seed}: {entry}", flush=True),
        )


def task_set() -> dict[str, TestTask]:
    return test_tasks("llvm") | test_tasks("llvm-more")


# -- judge -----------------------------------------------------------------------------------------


def judge(names: Iterable[str], seeds: Iterable[int]) -> None:
    path = result_file(SCRIPT, ".jsonl")
    done = {(row["variant"], row["seed"]) for row in read_rows(path) if "tasks" in row}
    for seed in seeds:
        for name in (*BOUNDS, *names):
            if (name, seed) in done or not is_there(name, seed):
                continue
            tasks = {}
            for task in task_set():
                proposals, counts = written(name, fresh_state(task, JUDGE), seed)
                tasks[task] = {**counts, "scores": judged(proposals, fresh_state(task, JUDGE))}
            row = {"variant": name, "seed": seed, "judge": JUDGE, "tasks": tasks}
            if name not in BOUNDS:
                row |= {"replay": replayed(name, seed), **described(name, seed)}
            about = provenance()
            add_rows(path, [{**row, **{key: about[key] for key in ("machine", "date", "commit")}}])
            print(f"{name} {seed}: {json.dumps(row.get('replay', {}))}", flush=True)


def is_there(name: str, seed: int) -> bool:
    return name in BOUNDS or (folder_of(name, seed) / "config.json").exists()


def described(name: str, seed: int) -> dict[str, Any]:
    model = writer(name, seed)
    trained = VARIANTS.get(VARIANTS[name].model, VARIANTS[name])
    train = model.card.train
    return {
        "parameters": model.size(),
        "steps": train["pretrain"] + train["learn"]["steps"] + train["preference"],
        "learnt_from_judge": trained.corpus,
    }


@cache
def places(platform: str) -> dict[str, tuple[Any, Any, Any]]:
    """By task: workload, space and platform."""
    from tensorese.identity import workload_of
    from tensorese.records.store import Store
    from tensorese.space.space import task_space
    from tensorese.targets import Target

    if platform == JUDGE:
        with Store.open(ROOT / "data" / "cpu") as store:
            target = Target.parse(store.targets()[JUDGE])
    else:
        target = Target.parse(platform)
    found = {}
    for name, task in task_set().items():
        module = task.module()
        space = task_space(module, target, seed=0)
        found[name] = workload_of(module), space, target.platform()
    return found


def fresh_state(task: str, platform: str) -> Any:
    from tensorese.search.contracts import TaskState

    return TaskState(*places(platform)[task])


def writer(name: str, seed: int) -> Any:
    from tensorese.language.sentence import UNKNOWN
    from tensorese.models.base import load_model
    from tensorese.models.tlm import TLM

    model = load_model(folder_of(name, seed))
    assert isinstance(model, TLM)
    if not VARIANTS[name].wished:
        model.wish = UNKNOWN
    return model


def written(name: str, state: Any, seed: int) -> tuple[list[Any], dict[str, int]]:
    """The ten likeliest of what is drawn, no two alike; and what became of all that was drawn."""
    if name in BOUNDS:
        return bound(name, state, seed), {}
    from tensorese.models.tlm import Sampling
    from tensorese.search.proposers.pool import Scored, distinct, pick
    from tensorese.search.proposers.tlm import TLMProposer, WritingConfig
    from tensorese.space.counting import count

    config = WritingConfig(sampling=Sampling(**VARIANTS[name].sampling))
    proposer = TLMProposer(None, seed, model=writer(name, seed), config=config)
    counts, groups = dict.fromkeys(("drawn", "accepted", "distinct", "possible"), 0), []
    for group in proposer.drawn(state, DRAWN, int(state.rng(seed).integers(1 << 62))):
        space = state.space.sketches[group.sketch]
        ended = np.isfinite(group.scores)
        rows, scores = group.rows[ended], group.scores[ended]
        legal = space.legal(rows) if len(rows) else ended[:0]
        unique, first = distinct(rows[legal])
        counts["drawn"] += len(ended)
        counts["accepted"] += int(legal.sum())
        counts["distinct"] += len(unique)
        counts["possible"] += min(int(legal.sum()), count(space))
        groups.append(Scored(sketch=group.sketch, rows=unique, scores=scores[legal][first]))
    return pick(state, groups, WRITTEN, name, apart=config.apart), counts


def bound(name: str, state: Any, seed: int) -> list[Any]:
    """Programs at random, or what evolution finds best under the judge's model."""
    from tensorese.search.proposers.evolution import Evolution, EvolutionConfig
    from tensorese.search.proposers.random_rows import random_proposals
    from tensorese.search.proposers.shares import sketch_shares
    from tensorese.search.rankers.guided import GuidedRanker

    if name == "random":
        rng = np.random.default_rng(seed)
        return list(random_proposals(state, WRITTEN, sketch_shares(state), rng, []))
    search = EvolutionConfig(population=2048, epsilon=0.0)
    return list(Evolution(GuidedRanker(judging(), JUDGE), search, seed).evolve(state, WRITTEN))


@cache
def judging() -> Any:
    from tensorese.models.base import load_model
    from tensorese.models.catalog import SHIPPED

    return load_model(SHIPPED / JUDGE)


def judged(proposals: list[Any], state: Any) -> list[float]:
    """Log2 of speed, as the shipped ranker's voters have it in the mean; the likeliest first."""
    model, scores = judging(), []
    for one in proposals:
        sketch = state.space.sketches[one.sketch].sketch
        inputs = model.read(state.workload, sketch, np.array([one.row], dtype=np.int64))
        scores.append(round(float(model.speeds(inputs, JUDGE).mean()), 4))
    return scores


def replayed(name: str, seed: int) -> dict[str, float | int]:
    """How well likelihood orders what was measured of tasks that nothing was trained on."""
    from tensorese.features.programs import read_programs
    from tensorese.records.store import Store
    from tensorese.training.recipes.base import judge_model

    with Store.open(ROOT / "data" / "cpu") as store:
        programs = read_programs([store], platforms=[JUDGE], split="test")
    found = judge_model(writer(name, seed), programs, JUDGE, range(len(programs.tasks)))
    wanted = ("top1", "top5", "pairwise", "random_top1", "random_top5", "tasks")
    return {key: round(found[key], 4) for key in wanted}


# -- measure ---------------------------------------------------------------------------------------


def measure(names: Iterable[str], seeds: Iterable[int]) -> None:
    """What all variants wrote for a task, in one mixed order: all are timed on the same minutes."""
    from tensorese.measure.tuning_farm import TuningFarm
    from tensorese.targets import Target

    path = result_file(SCRIPT, ".jsonl")
    done = {(row["task"], row["seed"]) for row in read_rows(path) if "times" in row}
    target = Target.parse("host")
    with TuningFarm(target, platform=target.platform()) as farm:
        for task in task_set():
            for seed in seeds:
                there = [n for n in ("random", *names) if is_there(n, seed)]
                if (task, seed) not in done:
                    about = provenance()
                    about = {key: about[key] for key in ("machine", "date", "commit")}
                    times = timed(there, task, seed, farm)
                    add_rows(path, [{"task": task, "seed": seed, "times": times, **about}])
                    print(f"{task} {seed}: measured", flush=True)


def timed(names: list[str], task: str, seed: int, farm: Any) -> dict[str, list[float | None]]:
    """By variant: seconds of its ten programs, the likeliest first; None of one that failed."""
    from tensorese.measure.base import Candidate

    made: dict[str, list[Any]] = {}
    for name in names:
        state = fresh_state(task, "host")
        proposals, _ = written(name, state, seed)
        made[name] = [state.space.program(one.sketch, one.row, state.workload) for one in proposals]
    unique = {program.id: program for each in made.values() for program in each}
    order = np.random.default_rng(seed).permutation(sorted(unique))
    measured = farm.measure([Candidate(program=unique[key], origin=SCRIPT) for key in order])
    latency = {key: one.latency for key, one in zip(order, measured, strict=True)}
    return {name: [_number(latency[program.id]) for program in each] for name, each in made.items()}


def _number(latency: float) -> float | None:
    return latency if math.isfinite(latency) and latency > 0 else None


# -- report ----------------------------------------------------------------------------------------


def report() -> None:
    path = result_file(SCRIPT, ".jsonl")
    rows = read_rows(path)
    judged_rows = [row for row in rows if "tasks" in row]
    timings = [row for row in rows if "times" in row]
    best = _best_scores(judged_rows)
    seeds = {row["variant"]: 0 for row in judged_rows}
    for row in judged_rows:
        seeds[row["variant"]] += 1
    steps = sorted({row["steps"] for row in judged_rows if "steps" in row and is_made(row)})
    lines = [
        "# What each part of TLM is worth",
        "",
        f"{len(best)} test tasks, models of {' or '.join(map(str, steps))} steps, {JUDGE}. "
        "Accepted: share of what is drawn; distinct: of what is accepted, where the space has so "
        "many. Predicted: speed by the shipped ranker over the best that search finds under it, "
        "geometric mean [95 % interval over tasks]. Replay: top-1 and top-5 of all measured test "
        "tasks, ordered by likelihood. * learnt from what this ranker scored.",
        "",
        "| variant | seeds | M parameters | accepted | distinct | first | best of ten | replay "
        "top-1 | top-5 |" + (" measured best of ten |" if timings else ""),
        "|---|" + "---:|" * (8 + bool(timings)),
    ]
    for name in (*VARIANTS, *BOUNDS):
        mine = [row for row in judged_rows if row["variant"] == name]
        if mine:
            cells = [str(seeds[name]), *_counts(mine)]
            cells += [_predicted(mine, best, n) for n in (1, WRITTEN)]
            cells += [_mean(mine, key) for key in ("top1", "top5")]
            cells += [_measured(timings, name)] if timings else []
            mark = "*" if mine[0].get("learnt_from_judge") else ""
            lines.append(f"| {name}{mark} | " + " | ".join(cells) + " |")
    text = "\n".join([*lines, ""])
    path.with_suffix(".md").write_text(text)
    print(text)


def is_made(row: dict[str, Any]) -> bool:
    """Whether the model was trained here, by the same steps as the others."""
    return (VARIANTS[row["variant"]].model or row["variant"]) in VARIANTS


def _best_scores(rows: list[dict[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in rows:
        for task, told in row["tasks"].items():
            if row["variant"] == BOUNDS[0]:
                found[task] = max(found.get(task, -math.inf), *told["scores"])
    return found


def _counts(rows: list[dict[str, Any]]) -> list[str]:
    if "parameters" not in rows[0]:
        return ["", "", ""]
    total = {
        key: sum(task[key] for row in rows for task in row["tasks"].values())
        for key in ("drawn", "accepted", "distinct", "possible")
    }
    accepted = 100 * total["accepted"] / total["drawn"]
    distinct = 100 * total["distinct"] / max(1, total["possible"])
    return [f"{rows[0]['parameters'] / 1e6:.2f}", f"{accepted:.1f} %", f"{distinct:.1f} %"]


def _predicted(rows: list[dict[str, Any]], best: dict[str, float], n: int) -> str:
    """A task for which nothing legal was written counts as 64 times slower."""
    each = {
        task: [max([*row["tasks"][task]["scores"][:n], -6.0]) - best[task] for row in rows]
        for task in best
    }
    return _interval([math.log(2) * float(np.mean(values)) for values in each.values()])


def _measured(rows: list[dict[str, Any]], name: str) -> str:
    """Over the best that anybody wrote for the task; nothing valid counts as 20 times slower."""
    logs: dict[str, list[float]] = {}
    for row in (row for row in rows if name in row["times"]):
        mine = [r for r in rows if r["task"] == row["task"]]
        best = min(t for r in mine for each in r["times"].values() for t in each if t)
        valid = [t for t in row["times"][name] if t]
        logs.setdefault(row["task"], []).append(math.log(best / min(valid) if valid else 0.05))
    return _interval([float(np.mean(values)) for values in logs.values()]) if logs else ""


def _interval(logs: list[float]) -> str:
    from tensorese.evaluation.metrics import bootstrap

    mean = bootstrap(logs)
    return f"{math.exp(mean.mean):.3f} [{math.exp(mean.low):.2f}, {math.exp(mean.high):.2f}]"


def _mean(rows: list[dict[str, Any]], key: str) -> str:
    values = [row["replay"][key] for row in rows if "replay" in row]
    return f"{np.mean(values):.3f}" if values else ""


if __name__ == "__main__":
    main()
