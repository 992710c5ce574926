"""The TLM paper's Table 3 on our tasks: speed after so many trials, and the time they took.

    python benchmarks/tlm_trials.py run [--tasks ...] [--systems ...] [--seeds 3] [--trials 64]
    python benchmarks/tlm_trials.py retime
    python benchmarks/tlm_trials.py report

Tasks are those of `test_tasks.json`. Systems: `tlm` (what the shipped language model writes, by its
own likelihood, no ranker), `auto` (evolution with the shipped ranker), `portfolio`, `random` (1,000
legal programs), `stock` (MetaSchedule, once). Every row is a process, timed from its start to its
result, and is not run again once it is there. `retime` races the best program of the first 1, 10,
16, 32 and 64 trials of every row, in turns, by one harness. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

from common import add_rows, machine_name, provenance, read_rows, result_file
from tune_child import FIRST
from tune_retime import race
from tune_vs_metaschedule import comparison, key_of, machine, replace_rows, run_row, runs_of

SCRIPT = "tlm_trials"
SYSTEMS = ("tlm", "auto", "portfolio", "random", "stock")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=("run", "retime", "report"))
    parser.add_argument("--set", default="test", choices=("test", "test-more", "test-cuda"))
    parser.add_argument("--tasks", nargs="*")
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--drawn", type=int, default=1000, help="Random programs, one seed.")
    parser.add_argument("--stock", type=int, help="Trials of stock; 256, of `test-more` 64.")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    chosen = comparison(options.set)
    name = machine_name(gpu=chosen.target == "cuda")
    path = result_file(SCRIPT, ".jsonl", name)
    if options.stage == "run":
        run(chosen, path, options)
    if options.stage == "retime":
        retime(chosen, path, options.rounds)
    if options.stage == "report":
        report(path)


def run(chosen: Any, path: Path, options: argparse.Namespace) -> None:
    done = {key_of(row) for row in runs_of(path)}
    trials = {"random": options.drawn, "stock": options.stock or chosen.long}
    for system in options.systems:
        once = system in trials
        for seed in range(1 if once else options.seeds):
            for task in options.tasks or list(chosen.tasks):
                row = {"system": system, "task": task, "seed": seed, **machine(chosen.target)}
                row["trials"] = trials.get(system, options.trials)
                if key_of(row) in done:
                    continue
                made = run_row(chosen, row)
                if "first" in made:  # the program stands there
                    made.pop("winner")
                about = provenance()
                add_rows(path, [{**made, "date": about["date"], "commit": about["commit"]}])
                print(f"{system} {task} {seed}: {made['secs']:.1f} s", flush=True)


def retime(chosen: Any, path: Path, rounds: int) -> None:
    from tensorese.measure.tuning_farm import TuningFarm
    from tensorese.targets import Target

    here = machine(chosen.target)
    target = Target.parse(chosen.target)
    rows = [row for row in runs_of(path) if all(row[k] == here[k] for k in here)]
    raced: dict[str, Any] = {}
    with TuningFarm(target, platform=target.platform()) as farm:
        for name, task in chosen.tasks.items():
            entries = _entries([row for row in rows if row["task"] == name])
            if len(entries) < 2:
                continue
            unique = {json.dumps(row["winner"], sort_keys=True): row for row in entries.values()}
            times = race(farm, task, unique, rounds)
            raced[name] = {
                label: times[json.dumps(row["winner"], sort_keys=True)]["latency"]
                for label, row in entries.items()
            }
            print(f"{name}: {len(unique)} programs", flush=True)
    about = {key: value for key, value in provenance().items() if key in ("date", "commit")}
    kept = [row for row in read_rows(path) if row.get("retimed") != chosen.name]
    replace_rows(path, [*kept, {"retimed": chosen.name, "tasks": raced, "where": here, **about}])


def _entries(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By system, trials and seed: the program that was best by then."""
    entries = {}
    for row in rows:
        if row["system"] == "stock":
            entries[f"stock/{row['trials']}/0"] = row
        winner: Any = None
        for n, best in row.get("first", {}).items():
            winner = best.get("winner", winner)
            entries[f"{row['system']}/{n}/{row['seed']}"] = {**row, "winner": winner}
    return entries


def report(path: Path) -> None:
    rows = read_rows(path)
    raced = [row for row in rows if "retimed" in row]
    if not raced:
        raise SystemExit(f"{path} has no race yet; run the stage retime")
    lines = []
    for row in raced:
        lines += _table(row["retimed"], row["tasks"], [r for r in rows if "system" in r])
    text = "\n".join(["# Speed after so many trials", "", *lines])
    path.with_suffix(".md").write_text(text)
    print(text)


def _table(name: str, tasks: dict[str, dict[str, float]], rows: list[dict[str, Any]]) -> list[str]:
    """Speed over the reference's: stock's where it ran, else evolution's after 64 trials."""
    stock = {label for times in tasks.values() for label in times if label.startswith("stock")}
    reference = max(stock, key=lambda label: int(label.split("/")[1])) if stock else "auto/64"
    lines = [
        f"Set `{name}`, {len(tasks)} tasks; speed over that of `{reference}`, geometric mean over "
        "tasks and seeds [least task]; winners raced in turns. Seconds: median of a row, from the "
        "start of its process.",
        "",
        "| system | " + " | ".join(map(str, FIRST)) + " | seconds |",
        "|---|" + "---:|" * (len(FIRST) + 1),
    ]
    for system in SYSTEMS:
        cells = [_cell(tasks, system, n, reference) for n in FIRST]
        secs = [row["secs"] for row in rows if row["system"] == system and row["task"] in tasks]
        if secs:
            shown = f"{statistics.median(secs):.0f}"
            lines.append(f"| {system} | " + " | ".join(cells) + f" | {shown} |")
    return [*lines, ""]


def _cell(tasks: dict[str, dict[str, float]], system: str, n: int, reference: str) -> str:
    ratios = []
    for times in tasks.values():
        base = [t for label, t in times.items() if label.startswith(reference)]
        mine = [t for label, t in times.items() if label.startswith(f"{system}/{n}/")]
        if base and mine:
            logs = statistics.fmean(math.log(t) for t in mine)
            ratios.append(statistics.geometric_mean(base) / math.exp(logs))
    if not ratios:
        return ""
    return f"{statistics.geometric_mean(ratios):.2f} [{min(ratios):.2f}]"


if __name__ == "__main__":
    main()
