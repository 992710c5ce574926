"""The TLM paper's Figure 9 on our tasks: how the sum of best latencies falls, round by round.

    python benchmarks/tlm_iterate.py [--tasks 24] [--rounds 8] [--model auto] [--target host]

Runs `tensorese iterate` on training tasks of every class, drawn once and for all, in
runs/tlm_iterate; a run that was stopped goes on. Options it does not know go to `iterate`
(`--set steps=500`, `--trials 3000`, `--per-task 16`, `--task-share 0.25`). Writes the curve, by
round: trials, seconds, the weighted sum of best latencies; and draws it. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import ROOT, environment, result_file, write_result
from tensorese.collect.tasklist import write_tasks
from tensorese.iterate.page import curve
from tensorese.report import svg
from tensorese.targets import Target
from tlm_generate import chosen_tasks

SCRIPT = "tlm_iterate"
STYLE = (
    "text{font:12px sans-serif}.end{text-anchor:end}.middle{text-anchor:middle}"
    ".grid{stroke:#ddd}.axis{stroke:#888}.line{fill:none;stroke:#1a6;stroke-width:2}.dot{fill:#1a6}"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--model", default="auto")
    parser.add_argument("--target", default="host")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / SCRIPT)
    parser.add_argument("--name", default=SCRIPT, help="Folder of the result file.")
    options, others = parser.parse_known_args()
    kind = Target.parse(options.target).kind
    run = options.work / f"{kind}-{options.tasks}"
    iterate(options, others, kind, run)
    machine = result_file(SCRIPT).stem if kind == "llvm" else options.target.replace(":", "-")
    result = told(run)
    write_result(options.name, {"options": others, **result}, machine)
    drawing = result_file(options.name, ".svg", machine)
    drawing.write_text(drawn(result["rounds"]))
    print(drawing.with_suffix(".json"))


def iterate(options: argparse.Namespace, others: list[str], kind: str, run: Path) -> None:
    tasks = chosen_tasks(kind, options.tasks, split="")
    if len(tasks) < options.tasks:
        raise SystemExit(f"there are {len(tasks)} training tasks for {kind}; ask for fewer")
    run.parent.mkdir(parents=True, exist_ok=True)
    listed = run.with_suffix(".parquet")
    write_tasks(listed, tasks)
    command = [sys.executable, "-m", "tensorese", "iterate", "--tasks", str(listed)]
    command += ["--target", options.target, "--model", options.model, "--out", str(run)]
    command += ["--rounds", str(options.rounds), *others]
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True, env=environment())


def told(run: Path) -> dict[str, Any]:
    """Of the run's folder: its head and the curve; a task counts before it has a first result."""
    head = json.loads((run / "rounds.json").read_text())
    rounds = [json.loads(line) for line in (run / "curve.jsonl").read_text().splitlines()]
    weights = {task["workload"]: float(task["weight"]) for task in head["tasks"]}
    known = ("round", "trials", "secs", "tasks", "gain", "model", "learnt", "statuses")
    lines = [
        {**{key: line[key] for key in known}, "sum": secs}
        for line, (_, secs) in zip(rounds, curve(rounds, weights), strict=True)
    ]
    about = {key: head[key] for key in ("platform", "model", "state", "reason", "config")}
    tasks = [{key: task[key] for key in ("name", "workload", "weight")} for task in head["tasks"]]
    return {**about, "tasks": tasks, "rounds": lines}


def drawn(rounds: list[dict[str, Any]]) -> str:
    points = [(float(line["trials"]), line["sum"] * 1e3) for line in rounds]
    frame = svg.Frame(x=(0.0, points[-1][0]), y=(0.0, points[0][1]), x_label="trials", y_label="ms")
    marks = svg.steps(frame, points), svg.dots(frame, points)
    text = frame.draw(*marks, title="sum of best latencies over trials")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{frame.width:g}"'
    style = f'<style>{STYLE}</style><rect width="100%" height="100%" fill="white"/>'
    inside = text.partition(">")
    return f"{inside[0].replace('<svg', head)}>{style}{inside[2]}\n"


if __name__ == "__main__":
    main()
