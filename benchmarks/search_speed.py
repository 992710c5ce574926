"""From a task to 64 ranked, legal, new candidates ready to build: our search against stock's.

    python benchmarks/search_speed.py [--kind llvm cuda] [--case conv2d ...] [--model KIND=FOLDER]
        [--side ours stock shared growth] [--repeats 3] [--out search_speed]

Every measurement is a process of its own, given the same cores. What is timed starts when TVM and
the tensor intrinsics are imported (stock takes 20 s for those of all targets: excluded, both sides
load x86's alone) and a task of four elements has warmed both up; it ends when 64 schedules are
postprocessed. 64 programs count as measured: their latencies are made up by a fixed function of
the decisions, because neither the cost of a search nor the comparison of scores depends on where
labels come from. Learning them is reported apart on both sides: it happens after measuring. A
trained model (`--model`, one a kind) ranks unlabelled programs; loading it is not counted.

    ours     task_space, Evolution with 2,048 scored rows, materialise
    stock    TuneContext, EvolutionarySearch as it comes (512 x 4 generations), XGBModel
    shared   stock's search with our ranker as its cost model: whose picks score higher? (its time
             is of no interest: it may run beside other work)
    growth   our search with 2,048 to 1,048,576 scored rows, nothing replayed

Rows go to benchmarks/results/search_speed/MACHINE.jsonl as they are made; what is there already
is not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import add_rows, provenance, read_rows, result_file

CASES = ("conv2d", "matmul", "depthwise_conv2d", "softmax")
KINDS = ("llvm", "cuda")
SIDES = ("ours", "stock", "shared", "growth")
SIZES = (2_048, 16_384, 131_072, 1_048_576)
LIMIT_SECS = 1800
VERSION = 2  # of our side: rows of an earlier one stay in the file and are not reported
PARTS = ("space", "propose", "materialise")
WORKER = Path(__file__).with_name("search_speed_worker.py")


def jobs(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One dictionary per process to start, ours first: they are the cheap ones."""
    listed: list[dict[str, Any]] = []
    for side in args.side:
        for kind in args.kind:
            for case in args.case:
                where = {"side": side, "kind": kind, "case": case, "cores": args.cores}
                where |= {"population": args.population, "stock": args.stock_population}
                where["head"] = args.head
                rankers = ["online", *(f"model:{m}" for m in _models(args, kind))]
                wanted = [r for r in rankers if not args.ranker or r.split(":")[0] in args.ranker]
                listed += _of_side(side, where, wanted, args)
    return listed


def _models(args: argparse.Namespace, kind: str) -> list[str]:
    return [folder for one, _, folder in (m.partition("=") for m in args.model) if one == kind]


def _of_side(
    side: str, where: dict[str, Any], rankers: list[str], args: argparse.Namespace
) -> list[dict[str, Any]]:
    if side != "stock":
        where = where | {"version": VERSION}
    if side == "growth":
        sizes = [size for size in SIZES if size <= args.largest]
        return [
            where | {"ranker": r, "population": size, "repeat": 0}
            for r in rankers
            for size in sizes
        ]
    if side == "stock":
        return [where | {"ranker": "xgb", "repeat": k} for k in range(args.repeats)]
    repeats = args.repeats if side == "ours" else 1
    return [where | {"ranker": r, "repeat": k} for r in rankers for k in range(repeats)]


def run(job: dict[str, Any]) -> dict[str, Any]:
    """The worker's answer, or why there is none."""
    cores = sorted(os.sched_getaffinity(0))[: job["cores"]]
    command = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, str(WORKER)]
    try:
        done = subprocess.run(
            [*command, json.dumps(job)], capture_output=True, text=True, timeout=LIMIT_SECS
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {LIMIT_SECS} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not lines:
        return {"error": (done.stderr or done.stdout)[-800:]}
    answer: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return answer


def report(rows: list[dict[str, Any]]) -> None:
    """Tables: medians over repeats, and how many times faster."""
    good = [row for row in rows if "error" not in row and row.get("version", VERSION) == VERSION]
    good = [row for row in good if "version" in row or row["side"] == "stock"]
    print(
        "| target | task | ranker | s (space, propose, replay) | stock, s | times faster |", end=""
    )
    print(" mean score, stock's | peak MB, stock's |\n" + "|---" * 8 + "|")
    for kind, case in dict.fromkeys((row["kind"], row["case"]) for row in good):
        here = [row for row in good if (row["kind"], row["case"]) == (kind, case)]
        for ranker in dict.fromkeys(row["ranker"] for row in here if row["side"] == "ours"):
            print(
                f"| {kind} | {case} | {_called(ranker)} | " + " | ".join(_cells(here, ranker)), "|"
            )
    print("\n| target | task | ranker | scored | s | us each | peak MB |\n" + "|---" * 7 + "|")
    for row in good:
        if row["side"] == "growth":
            secs = row["parts"]["propose"]
            each = secs / row["scored"] * 1e6
            print(f"| {row['kind']} | {row['case']} | {_called(row['ranker'])} | ", end="")
            print(f"{row['scored']:,} | {secs:.2f} | {each:.0f} | {row['peak_mb']:.0f} |")


def _cells(here: list[dict[str, Any]], ranker: str) -> list[str]:
    ours = [row for row in here if row["side"] == "ours" and row["ranker"] == ranker]
    stock = [row for row in here if row["side"] == "stock"]
    shared = [row for row in here if row["side"] == "shared" and row["ranker"] == ranker]
    secs = _median([row["secs"] for row in ours])
    parts = [f"{_median([row['parts'][part] for row in ours]):.2f}" for part in PARTS]
    cells = [f"{secs:.2f} ({', '.join(parts)})"]
    theirs = _median([row["secs"] for row in stock])
    cells += [f"{theirs:.1f}", f"{theirs / secs:.0f}"] if stock else ["", ""]
    score = f"{_median([row['mean_score'] for row in ours]):.2f}"
    cells.append(score + (f", {shared[0]['mean_score']:.2f}" if shared else ""))
    peak = f"{max(row['peak_mb'] for row in ours):.0f}"
    cells.append(peak + (f", {max(row['peak_mb'] for row in stock):.0f}" if stock else ""))
    return cells


def _called(ranker: str) -> str:
    return ranker.removeprefix("model:").rstrip("/").split("/")[-1]


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kind", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--case", nargs="+", default=list(CASES))
    parser.add_argument("--side", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument(
        "--model", nargs="+", default=[], help="KIND=FOLDER of trained models, ranked with too"
    )
    parser.add_argument("--ranker", nargs="+", default=[], help="only these: online, model")
    parser.add_argument("--head", default="", help="the model's platform, if it has several")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--population", type=int, default=2048)
    parser.add_argument("--stock-population", type=int, default=512)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="of the growth sizes")
    args = parser.parse_args()
    path = result_file("search_speed", ".jsonl")
    rows = read_rows(path)
    known = {json.dumps(row["job"], sort_keys=True) for row in rows if "error" not in row}
    for job in jobs(args):
        if json.dumps(job, sort_keys=True) in known:
            continue
        load = os.getloadavg()[0]  # what else was running: times of a busy machine are not quoted
        row = {"job": job, **job, "load": load, **run(job), **provenance()}
        rows.append(row)
        add_rows(path, [row])
        print(job, {k: row[k] for k in ("secs", "parts", "error") if k in row}, flush=True)
    report(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
