"""How fast programs are collected here, how many TVM rejects, and how sure their times are.

    python benchmarks/collect.py run [--target T] [--minutes 2] [--calibrate] [--again 96]
    python benchmarks/collect.py note RESULT.json ... [--calibration LOG] [--machine TEXT]

`run` collects into a scratch store, then times `--again` of its programs once more, alone, in a
fresh process, and compares. `note` writes down the results of runs on other machines (what
`tensorese collect --json` printed there). Both add to benchmarks/results/collect/platforms.json.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import ROOT, environment, result_file, write_result

NEEDED = {"1c": 30.0, "2c": 3.0, "h200": 5.0}  # programs a second, by the end of a platform's name
MOST_REJECTED = 0.02


def collect(*options: str | Path) -> dict[str, Any]:
    """`tensorese collect` in a process of its own."""
    command = [sys.executable, "-m", "tensorese", "collect", "--json", *map(str, options)]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run(args: argparse.Namespace) -> dict[str, Any]:
    from tensorese.evaluation.noise import compare_stores
    from tensorese.records.store import Store

    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "first", Path(folder) / "second"
        common = ["--tasks", ROOT / "data" / "tasks.parquet", "--target", args.target]
        tasks = ["--most-tasks", args.most_tasks, *(["--calibrate"] if args.calibrate else [])]
        result = collect(*common, *map(str, tasks), "--minutes", str(args.minutes), "--out", first)
        if args.again:
            collect(*common, "--programs", first, "--again", str(args.again), "--out", second)
            with Store.open(first) as a, Store.open(second) as b:
                result["noise"] = compare_stores(a, b, result["platform"])
    return result


def judged(result: dict[str, Any]) -> dict[str, Any]:
    """With what was asked for beside it."""
    needed = next((rate for end, rate in NEEDED.items() if result["platform"].endswith(end)), None)
    del result["store"]
    return {**result, "needed_per_sec": needed, "most_rejected": MOST_REJECTED}


def earlier(before: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Runs of the same platform, the last first: how many, how fast, where."""
    if before is None:
        return []
    names = ("measured", "seconds", "programs_per_sec", "rejected_share", "layout", "on")
    return [{k: before[k] for k in names if k in before}, *before.get("earlier", [])]


def calibrations(log: Path) -> list[dict[str, Any]]:
    """The lines of `--calibrate`: how far each layout's times were from isolated ones."""
    pattern = re.compile(
        r"calibrating: (?P<layout>[^:]+): p90 (?P<p90>[\d.]+)%, median (?P<median>[\d.]+)%, "
        r"bias (?P<bias>[-+\d.]+)%, n (?P<n>\d+), (?P<rate>[\d.]+)/s"
    )
    matches = (pattern.search(line) for line in log.read_text().splitlines())
    return [match.groupdict() for match in matches if match]


def main() -> None:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("--target", default="host")
    runner.add_argument("--minutes", type=float, default=2.0)
    runner.add_argument("--most-tasks", type=int, default=120)
    runner.add_argument("--calibrate", action="store_true")
    runner.add_argument("--again", type=int, default=96)
    noter = verbs.add_parser("note")
    noter.add_argument("results", nargs="+", type=Path)
    noter.add_argument("--calibration", type=Path)
    noter.add_argument("--machine", default="", help="Where it ran, and what ran beside it.")
    args = parser.parse_args()
    path = result_file("collect", machine="platforms")
    known = json.loads(path.read_text()) if path.exists() else {}
    runs: dict[str, Any] = known.get("runs", {})
    fresh = [run(args)] if args.verb == "run" else [json.loads(p.read_text()) for p in args.results]
    for result in fresh:
        before = runs.get(result["platform"])
        runs[result["platform"]] = {**judged(result), "earlier": earlier(before)}
        if args.verb == "note":  # else it is the machine of this file
            runs[result["platform"]]["on"] = args.machine
    if args.verb == "note" and args.calibration:
        runs[fresh[0]["platform"]]["calibration"] = calibrations(args.calibration)
    print(json.dumps({result["platform"]: runs[result["platform"]] for result in fresh}, indent=1))
    print(write_result("collect", {"runs": runs}, "platforms"))


if __name__ == "__main__":
    main()
