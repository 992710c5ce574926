"""Every kind of model on every platform of `data/`: trained, judged on the same test rows.

    python benchmarks/compare_models.py [--data STORE ...] [--platform NAME ...]
        [--system NAME ...] [--folders DIR] [--jobs N] [--seeds 3] [--device cpu] [--again]

Programs of a store are lowered first, once. Then systems are trained, `--jobs` at a time, each in a
process of its own, on a platform's training rows, into DIR (a killed training goes on there), and
judged on the platform's test rows. Rows go into `benchmarks/results/compare/MACHINE.json` one by
one, and what is there is not made again: the same command goes on. Networks have three seeds. The
table that is printed at the end, and written beside the rows, gives means over seeds, intervals
over tasks, and paired differences from XGBoost on lowered features; rows that lack are listed.
`--again` judges anew what was trained: costs taken beside other jobs are too high.
`--set KEY=VALUE` changes every training (a quick look: `--set epochs=5`); with other settings name
another `--name` for the file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT, environment, machine_name, provenance, result_file
from tensorese.evaluation.compare import Comparison
from tensorese.evaluation.lowered_programs import Listener, ready_for
from tensorese.evaluation.metrics import bootstrap
from tensorese.evaluation.rows import ComparedRow, RowFile
from tensorese.features.base import feature_set
from tensorese.features.programs import read_programs
from tensorese.models.base import CONFIG, load_model
from tensorese.records.store import Store
from tensorese.training.recipes import trainable

STORES = (Path("data/cpu"), Path("data/h200"))
BASE = "xgboost"
VARIANTS: dict[str, tuple[str, ...]] = {
    "xgboost rank": ("xgboost", "--set", "objective=rank"),
    "lightgbm rank": ("lightgbm", "--set", "objective=rank"),
    "tlp paper": ("tlp", "--preset", "paper"),
    "tlp both": ("tlp", "--features", "both"),
}
"""Beside every kind as it comes: its name, and what `train` is told."""
RMSE = "{} rmse"
"""Of networks on lowered programs: the other loss."""
ONE_SEED = ("xgboost", "lightgbm")
NOT_RANKERS = ("tlm", "mtl-tlp")  # the second is of several platforms


@dataclass(frozen=True, kw_only=True)
class Job:
    system: str
    arguments: tuple[str, ...]
    store: Path
    platform: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.system}, seed {self.seed}"

    def folder(self, folders: Path) -> Path:
        return folders / f"{self.platform}-{self.system}-{self.seed}".replace(" ", "-")


def systems() -> dict[str, tuple[str, ...]]:
    from tensorese.training.recipes import recipe_class
    from tensorese.training.recipes.store_networks import StoreNetworkRecipe

    kinds = [kind for kind in trainable() if kind not in NOT_RANKERS]
    networks = [kind for kind in kinds if recipe_class(kind) is StoreNetworkRecipe]
    rmse = {RMSE.format(kind): (kind, "--set", "loss=rmse") for kind in networks}
    return {kind: (kind,) for kind in kinds} | VARIANTS | rmse


def jobs_of(args: argparse.Namespace) -> Iterator[Job]:
    known = systems()
    for path in args.data:
        with Store.open(path) as store:
            platforms = sorted(store.platforms())
        for platform in platforms:
            if args.platform and platform not in args.platform:
                continue
            for system in args.system or known:
                words = known[system]
                for seed in range(1 if words[0] in ONE_SEED else args.seeds):
                    yield Job(
                        system=system, arguments=words, store=path, platform=platform, seed=seed
                    )


def lower(path: Path) -> None:
    with Store.open(path) as store:
        programs = read_programs([store], split="all")
        say = Listener(say=print, progress=_progress)
        ready_for([feature_set("lowered")], programs, [store], say)


def _progress(done: int, total: int) -> None:
    if done % 1000 == 0 or done == total:
        print(f"{done} of {total} programs lowered", flush=True)


def train(job: Job, args: argparse.Namespace) -> str:
    """An empty text, or what went wrong."""
    out = job.folder(args.folders)
    if (out / CONFIG).exists():
        return ""
    kind, *more = job.arguments
    command = [sys.executable, "-m", "tensorese", "train", kind, "--data", str(job.store)]
    command += ["--platform", job.platform, "--fold", "-1", "--out", str(out), "--resume"]
    command += ["--device", args.device, "--set", f"seed={job.seed}", *more]
    for one in args.set:
        command += ["--set", one]
    threads = max(1, (os.cpu_count() or 1) // args.jobs)
    env = {**environment(), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def judge(job: Job, comparison: Comparison, args: argparse.Namespace) -> ComparedRow | None:
    folder = job.folder(args.folders)
    model = load_model(folder)
    row = comparison.model(job.platform, model, job.name)
    return None if row is None else slim(comparison.with_costs(row, model, folder))


def slim(row: ComparedRow) -> ComparedRow:
    """Without what the table does not need: there are hundreds of rows."""
    pooled = {key: value for key, value in row.pooled.items() if key.endswith("_pooled")}
    return replace(row, pooled=pooled, pairs={}, twice={})


def run(args: argparse.Namespace, file: RowFile) -> list[str]:
    """Trains and judges what the file lacks; returns what could not be."""
    made = set() if args.again else {(row.platform, row.system) for row in file.rows}
    jobs = [job for job in jobs_of(args) if (job.platform, job.name) not in made]
    for path in dict.fromkeys(job.store for job in jobs):
        lower(path)
    failed, judges = [], {}
    with ThreadPoolExecutor(args.jobs) as pool:
        trained = {pool.submit(train, job, args): job for job in jobs}
        for done in as_completed(trained):
            job, error = trained[done], done.result()
            where = f"{job.platform}, {job.name}"
            if error:
                failed.append(f"{where}: {error}")
                print(failed[-1], flush=True)
                continue
            if job.platform not in judges:
                judges[job.platform] = Comparison(Store.open(job.store), [job.platform])
                beside = judges[job.platform].random(job.platform)
                if beside is not None:
                    file.keep(slim(beside))
            row = judge(job, judges[job.platform], args)
            if row is not None:
                file.keep(row)
                print(f"{where}: top-1 {row.figures['top1']:.3f}", flush=True)
    return failed


def table(rows: Sequence[ComparedRow], failed: Sequence[str]) -> str:
    lines = []
    for platform in sorted({row.platform for row in rows}):
        mine: dict[str, list[ComparedRow]] = {}
        for row in rows:
            if row.platform == platform:
                mine.setdefault(row.system.partition(", seed")[0], []).append(row)
        lines += ["", f"**{platform}**, {_tasks(mine)} test tasks", ""]
        lines += [
            "| system | seeds | top-1 | 95 % | top-5 | pairs | top-1 beside XGBoost, paired "
            "| training s | feature µs | scores/s | KB |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        ordered = sorted(mine, key=lambda name: -_mean(mine[name], "top1"))
        lines += [_line(name, mine[name], mine.get(BASE, [])) for name in ordered]
    if failed:
        lines += ["", "Not there:", "", *(f"- {one}" for one in failed)]
    return "\n".join(lines).strip() + "\n"


def _tasks(mine: dict[str, list[ComparedRow]]) -> int:
    return int(max(row.figures["tasks"] for rows in mine.values() for row in rows))


def _mean(rows: Sequence[ComparedRow], key: str) -> float:
    return float(np.mean([row.figures[key] for row in rows]))


def _by_task(rows: Sequence[ComparedRow]) -> dict[str, float]:
    return {task: float(np.mean([row.ratios[task] for row in rows])) for task in rows[0].ratios}


def _line(name: str, rows: Sequence[ComparedRow], base: Sequence[ComparedRow]) -> str:
    ratios, interval, paired = _by_task(rows), "", ""
    if ratios:
        spread = bootstrap(list(ratios.values()))
        interval = f"{spread.low:.3f}-{spread.high:.3f}"
    if ratios and base and name != BASE:
        theirs = _by_task(base)
        gain = bootstrap([ratios[task] - theirs[task] for task in ratios])
        paired = f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    figures = [f"{_mean(rows, key):.3f}" for key in ("top1", "top5", "pairwise")]
    shown = [name, str(len(rows)), figures[0], interval, *figures[1:], paired, *_costs(rows)]
    return f"| {' | '.join(shown)} |"


def _costs(rows: Sequence[ComparedRow]) -> list[str]:
    each: list[dict[str, Any]] = [row.costs for row in rows if row.costs]
    if not each:
        return [""] * 4
    keys = ("training_seconds", "feature_us", "scores_a_second", "bytes")
    means = [float(np.mean([cost[key] or 0.0 for cost in each])) for key in keys]
    means[-1] /= 1000
    return [f"{mean:,.0f}" for mean in means]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="+", default=[p for p in STORES if p.is_dir()])
    parser.add_argument("--platform", nargs="+", default=[])
    parser.add_argument("--system", nargs="+", default=[], choices=list(systems()))
    parser.add_argument("--folders", type=Path, default=Path("runs/compare"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--name", default=machine_name(), help="Of the file of rows.")
    parser.add_argument("--again", action="store_true", help="Judge models that are there anew.")
    args = parser.parse_args()
    path = result_file("compare", machine=args.name)
    file = RowFile(path, provenance())
    failed = run(args, file)
    text = table(file.rows, failed)
    path.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
