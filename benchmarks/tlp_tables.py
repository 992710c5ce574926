"""Models on public measurements (docs/models.md): trained and judged by the command line.

    python benchmarks/tlp_tables.py run --data DIR [--system tlp ...] [--platform v100 ...]
    python benchmarks/tlp_tables.py report

DIR holds two imported stores, `ansor` (k80, v100, mi50) and `metaschedule` (a100). Five folds by
workload: each row is one fold of one seed, `tensorese train` on four fifths of the workloads and
`tensorese eval` on the rest. Rows go to `benchmarks/results/tlp_tables/MACHINE.jsonl`; what is
there is not run again. `report` prints means per task over folds and seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import RESULTS, add_rows, environment, machine_name, provenance, read_rows

FOLDS = 5
PLATFORMS = {"v100": "ansor", "k80": "ansor", "mi50": "ansor", "a100": "metaschedule"}
SYSTEMS = {
    "tlp": ["tlp"],
    "tlp, paper preset": ["tlp", "--preset", "paper"],
    "tlp, both": ["tlp", "--features", "both"],
    "physics": ["physics"],
    "ensemble": ["ensemble"],
}
KEY = ("system", "platform", "fold", "seed")
KEPT = ("tasks", "top1", "top5", "pairwise", "random_top1", "random_top5")


def tensorese(*words: str) -> str:
    command = [sys.executable, "-m", "tensorese", *words]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def judged(system: str, store: Path, platform: str, fold: int, more: list[str]) -> dict[str, Any]:
    """One model trained without the fold, judged on it."""
    with tempfile.TemporaryDirectory() as folder:
        where = ["--data", str(store), "--platform", platform]
        tensorese("train", *SYSTEMS[system], *where, "--fold", str(fold), "--out", folder, *more)
        result = json.loads(tensorese("eval", folder, *where, "--json"))
    return {name: result[name] for name in KEPT}


def run(args: argparse.Namespace, path: Path) -> None:
    done = {tuple(row[name] for name in KEY) for row in read_rows(path)}
    for system in args.system:
        for platform in args.platform:
            for fold, seed in ((fold, seed) for seed in range(args.seeds) for fold in range(FOLDS)):
                if (system, platform, fold, seed) in done:
                    continue
                more = ["--set", f"seed={seed}"]
                for setting in args.set:
                    more += ["--set", setting]
                figures = judged(system, args.data / PLATFORMS[platform], platform, fold, more)
                key = dict(zip(KEY, (system, platform, fold, seed), strict=True))
                add_rows(path, [{**key, **figures, **provenance()}])
                print(key, figures, flush=True)


def mean(rows: list[dict[str, Any]], name: str) -> float:
    """Per task: a fold weighs as much as it has tasks."""
    total: float = sum(row["tasks"] * row[name] for row in rows)
    return total / sum(row["tasks"] for row in rows)


def report(rows: list[dict[str, Any]]) -> None:
    print("| platform (tasks) | system | top-1 | top-5 | pairwise | seeds |")
    print("|---|---|---|---|---|---|")
    for platform in PLATFORMS:
        here = [row for row in rows if row["platform"] == platform]
        for system in dict.fromkeys(row["system"] for row in here):
            mine = [row for row in here if row["system"] == system]
            seeds = len({row["seed"] for row in mine})
            tasks = sum(row["tasks"] for row in mine) // seeds
            cells = " | ".join(f"{mean(mine, name):.3f}" for name in ("top1", "top5", "pairwise"))
            print(f"| {platform} ({tasks}) | {system} | {cells} | {seeds} |")
        if here:
            one, five = (mean(here, f"random_top{k}") for k in (1, 5))
            print(f"| {platform} | random order | {one:.3f} | {five:.3f} | 0.5 | exact |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=("run", "report"))
    parser.add_argument("--data", type=Path, help="Folder of the two stores.")
    parser.add_argument("--system", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--platform", nargs="+", choices=PLATFORMS, default=list(PLATFORMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", nargs="*", default=[], help="Settings of `train`: epochs=2.")
    parser.add_argument("--machine", default="", help="Of the rows; of `report`: h200.")
    args = parser.parse_args()
    path = RESULTS / "tlp_tables" / f"{args.machine or machine_name()}.jsonl"
    if args.verb == "run":
        if args.data is None:
            parser.error("run needs --data, the folder of the stores ansor and metaschedule")
        run(args, path)
    report(read_rows(path))


if __name__ == "__main__":
    main()
