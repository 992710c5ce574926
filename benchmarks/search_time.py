"""How long the same search takes with different models: the first paper's other table.

    python benchmarks/search_time.py --model NAME=auto --model NAME=DIR ... [--network zoo:NAME ...]
        [--trials N] [--seed N] [--runs DIR]

Every network is tuned with every model for as many trials (`tensorese tune --no-compile`), one
after the other; nothing else may run. A row says after how many seconds and trials a search had the
latency (the sum of the tasks' best, weighed) that the slowest of a network's searches ended with,
and 1.02 of the best that any of them found. Runs are kept in DIR and resume; rows are made anew
from all of them: `benchmarks/results/search_time/MACHINE.json`, and a table beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import ROOT, environment, result_file, write_result
from tensorese.report.gather import Report, gather

NETWORKS = ("zoo:resnet50", "zoo:mobilenet_v2", "zoo:bert_tiny")
"""Of the test networks: no model has seen their tasks."""
NEAR = 1.02
Curve = Sequence[tuple[float, float]]
"""Seconds, or trials, against the network's latency."""


def tune(network: str, model: str, run: Path, args: argparse.Namespace) -> None:
    command = [sys.executable, "-m", "tensorese", "tune", network, "--model", model]
    command += ["--trials", str(args.trials), "--seed", str(args.seed), "--no-compile"]
    subprocess.run([*command, "--out", str(run)], cwd=ROOT, env=environment(), check=True)


def first_at(curve: Curve, latency: float) -> float | None:
    """Where it was first as fast as that, if ever."""
    return next((at for at, now in curve if now <= latency), None)


def whole(report: Report) -> bool:
    """Whether every task has a time: a sum over some of them is no network's latency."""
    return all(task.history for task in report.tasks)


def rows_of(network: str, reports: dict[str, Report]) -> list[dict[str, Any]]:
    ends = {name: report.by_trials[-1][1] for name, report in reports.items()}
    slowest, near = max(ends.values()), NEAR * min(ends.values())
    return [
        {
            "network": network,
            "model": name,
            "ends_with_ms": 1e3 * ends[name],
            "trials": report.trials,
            "seconds": report.by_time[-1][0],
            "seconds_to_slowest": first_at(report.by_time, slowest),
            "trials_to_slowest": first_at(report.by_trials, slowest),
            "seconds_to_near_best": first_at(report.by_time, near),
            "trials_to_near_best": first_at(report.by_trials, near),
            "proposing_seconds": report.phases.get("propose", 0.0),
        }
        for name, report in reports.items()
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| network | model | ends with, ms | seconds | to the slowest's end: s; trials "
        f"| to {NEAR} of the best: s; trials |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        slow, near = (
            "; ".join(_shown(row[f"{what}_to_{where}"]) for what in ("seconds", "trials"))
            for where in ("slowest", "near_best")
        )
        shown = [row["network"], row["model"], f"{row['ends_with_ms']:.3f}"]
        lines.append("| " + " | ".join([*shown, f"{row['seconds']:.0f}", slow, near]) + " |")
    return "\n".join(lines) + "\n"


def _shown(number: float | None) -> str:
    return "never" if number is None else f"{number:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", required=True, metavar="NAME=auto|none|DIR")
    parser.add_argument("--network", nargs="+", default=NETWORKS)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "search_time")
    args = parser.parse_args()
    models = dict(one.split("=", 1) for one in args.model)
    rows: list[dict[str, Any]] = []
    for network in args.network:
        reports: dict[str, Report] = {}
        for name, model in models.items():
            run = args.runs / f"{network.replace(':', '-').replace('@', '-')}-{name}-{args.seed}"
            tune(network, model, run, args)
            report = gather(run)
            if whole(report):
                reports[name] = report
            else:
                print(f"{network}, {name}: some tasks have no time yet; more --trials", flush=True)
        rows += rows_of(network, reports) if reports else []
        write_result("search_time", {"trials": args.trials, "seed": args.seed, "rows": rows})
        print(json.dumps(rows[-len(reports) :], indent=1), flush=True)
    result_file("search_time", ".md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
