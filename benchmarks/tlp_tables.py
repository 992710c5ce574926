"""The tables of the TLP and MTL-TLP papers on public measurements; see docs/models.md.

    python benchmarks/tlp_tables.py run sweep --data DIR --out DIR --device cuda
    python benchmarks/tlp_tables.py trees --data DIR --out DIR
    python benchmarks/tlp_tables.py report --out DIR

DIR of the data holds two imported stores: `ansor` (k80, v100, mi50) and `metaschedule` (a100).
Choices are made in the stages `sweep`, `members` and `sweep3`, on folds 0-2 only; `final` trains
the frozen recipe and banks its scores, which `tlp_mix.py` judges.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import queue
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tlp_ablation import ablation, ablation_cpu, all_labels, mtl, mtl_more
from tlp_runs import Job, read_rows, row_key, run_job
from tlp_stages import FROZEN, final, members, mixes, paper, smoke, sweep, thaw
from tlp_third import freeze3, sweep3

STAGES: dict[str, Callable[[], list[Job]]] = {
    "smoke": smoke,
    "sweep": sweep,
    "members": members,
    "sweep3": sweep3,
    "final": final,
    "paper": paper,
    "mtl": mtl,
    "mtl-all": all_labels,
    "mtl-more": mtl_more,
    "ablation": ablation,
    "ablation-cpu": ablation_cpu,
}
FROM_THE_START = ("sweep", "members")
Result = tuple[Job, list[dict[str, Any]], str]


def _expected(job: Job) -> list[str]:
    keys = []
    for fold in job.folds:
        for seed in job.seeds:
            for platform in job.judged or job.platforms:
                row: dict[str, Any] = {
                    "table": job.table,
                    "system": job.system,
                    "platform": platform,
                    "fold": fold,
                    "seed": seed,
                    "settings": json.loads(json.dumps(job.settings())),
                }
                keys.append(row_key(row))
    return keys


def _work(task: tuple[Job, Path, str, Path, float]) -> Result:
    job, data, device, out, deadline = task
    if time.time() > deadline:
        return job, [], "no time left"
    try:
        return job, run_job(job, data, device, out), ""
    except Exception:
        return job, [], traceback.format_exc()


def tiny(job: Job) -> Job:
    """The same kind of job on a fiftieth of the data: does it run at all?"""
    return replace(
        job,
        train={**job.train, "epochs": 1},
        folds=job.folds[:1],
        seeds=job.seeds[:1],
        share=0.02,
        steps=0,
        physics_members=min(job.physics_members, 1),
        members=1,
    )


def run_stage(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    done = {row_key(row) for row in read_rows([args.out, *args.rows])}
    wanted = [job for stage in args.stage for job in STAGES[stage]()]
    jobs = [job for job in wanted if not set(_expected(job)) <= done]
    if args.only:
        jobs = [job for job in jobs if any(word in job.system for word in args.only.split(","))]
    if args.tiny:
        jobs = [tiny(job) for job in jobs]
    deadline = time.time() + args.seconds
    path = args.out / f"tlp_rows_{args.name or args.stage[0]}.jsonl"
    print(f"{' '.join(args.stage)}: {len(jobs)} jobs to run, {args.workers} at a time", flush=True)
    start = time.time()
    with path.open("a") as file:
        for job, rows, error in _results(jobs, args, deadline):
            for row in rows:
                file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{time.time() - start:6.0f}s {_line(job, rows, error)}", flush=True)


def _results(jobs: list[Job], args: argparse.Namespace, deadline: float) -> Iterator[Result]:
    """Results as they come. With `--apart`, workers that read the same records keep to them."""
    shares: dict[Any, list[Job]] = {}
    for job in jobs:
        shares.setdefault(job.platforms if args.apart else "", []).append(job)
    context = multiprocessing.get_context("spawn")
    done: queue.SimpleQueue[Result] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        for share in shares.values():
            pool = stack.enter_context(context.Pool(min(args.workers, len(share))))
            for job in share:
                task = (job, args.data, args.device, args.out, deadline)
                pool.apply_async(_work, (task,), callback=done.put)
        for _ in jobs:
            yield done.get()


def _line(job: Job, rows: list[dict[str, Any]], error: str) -> str:
    if error:
        return f"{job.system} {job.platforms}: {error.strip().splitlines()[-1]}\n{error[-1500:]}"
    if not rows:
        return f"{job.table}|{job.system} {job.platforms}: banked"
    parts = []
    for platform in job.judged or job.platforms:
        for system in dict.fromkeys(row["system"] for row in rows):
            figures = [
                (f[1] / f[2], f[1] / f[3], f[8])
                for row in rows
                if row["platform"] == platform and row["system"] == system
                for f in row["tasks"].values()
            ]
            means = "/".join(f"{sum(x) / len(x):.3f}" for x in zip(*figures, strict=True))
            parts.append(f"{platform}{system[len(job.system) :]} {means}")
    took = f"{rows[0]['steps']} steps, {rows[0]['seconds_of_all']}s for {rows[0]['models']}"
    return f"{job.table}|{job.system}: {', '.join(parts)} ({took})"


def freeze(args: argparse.Namespace) -> None:
    """The mix with the best mean of top-1, top-5 and the steady figure.

    Means over tasks, then over the four platforms; folds 0-2.
    """
    rows = [r for r in read_rows([args.out, *args.rows]) if r["table"] == "members"]
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for f in row["tasks"].values():
            mine = found.setdefault(row["system"], {}).setdefault(row["platform"], [])
            mine.append((f[1] / f[2] + f[1] / f[3] + f[8]) / 3)
    most = max(map(len, found.values()))
    means = {
        name: sum(sum(v) / len(v) for v in where.values()) / len(where)
        for name, where in found.items()
        if len(where) == most
    }
    best = max(means, key=lambda name: means[name])
    name, _, doubt = best.partition(", doubt ")
    settings = {**mixes()[name], "doubt": float(doubt or 0)}
    frozen = {"chosen": best, "folds": [0, 1, 2], "settings": settings, "means": means}
    args.frozen.write_text(json.dumps(frozen, indent=1) + "\n")
    for name, value in sorted(means.items(), key=lambda item: -item[1]):
        print(f"{value:.4f} {name}")
    print(f"frozen: {best}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("run", "trees", "bank-trees", "bank-grown", "freeze", "freeze3", "report"):
        sub = verbs.add_parser(verb)
        sub.add_argument("--out", type=Path, required=True)
        sub.add_argument("--rows", type=Path, nargs="*", default=[], help="more folders of rows")
        sub.add_argument("--frozen", type=Path, default=FROZEN)
        if verb in ("report", "freeze", "freeze3"):
            continue
        sub.add_argument("--data", type=Path, required=True)
        sub.add_argument("--seconds", type=float, default=520.0)
        sub.add_argument("--only", default="")
        if verb == "run":
            sub.add_argument("stage", choices=sorted(STAGES), nargs="+")
            sub.add_argument("--device", default="cuda")
            sub.add_argument("--workers", type=int, default=1)
            sub.add_argument("--apart", action="store_true", help="so many for each platform")
            sub.add_argument("--name", default="", help="of the file of rows")
            sub.add_argument("--tiny", action="store_true", help="a dry run")
    args = parser.parse_args()
    if args.verb == "run":
        if not set(args.stage) & set(FROM_THE_START):
            thaw(args.frozen)
        run_stage(args)
    elif args.verb == "freeze3":
        thaw()
        found = freeze3(read_rows([args.out, *args.rows]), args.frozen)
        for name, value in sorted(found["means"].items(), key=lambda item: -item[1]):
            print(f"{value:.4f} {name}")
        print(f"frozen: {found['chosen']}, mtl of {found['mtl_platforms']}")
    elif args.verb == "freeze":
        freeze(args)
    elif args.verb in ("trees", "bank-trees", "bank-grown"):
        from tlp_trees import bank_grown, bank_trees, run_trees

        {"trees": run_trees, "bank-trees": bank_trees, "bank-grown": bank_grown}[args.verb](args)
    else:
        from tlp_report import report, with_former

        former = {name: read_rows([args.out / name]) for name in ("first", "second", "third")}
        print(report(with_former(read_rows([args.out]), former)))


if __name__ == "__main__":
    main()
