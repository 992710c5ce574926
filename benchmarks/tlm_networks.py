"""The TLM paper's Figure 10 on our test networks: whole networks after few trials a task.

    python benchmarks/tlm_networks.py run [--networks ...] [--proposers ...] [--trials 1 10 32]
    python benchmarks/tlm_networks.py race
    python benchmarks/tlm_networks.py report

`run` tunes every network by every proposer with the shipped ranker, to so many trials a task, each
number going on from a copy of the run before; a library is built and verified every time, and a row
that is there is not run again. `race` times all libraries of a network in turns, and all programs
of each of its tasks by one farm: sums of tasks are of those times. Where results of
`tune_vs_metaschedule.py` or `tlm_trials.py` have MetaSchedule's program for a task on this machine,
it races too.
Run folders stay under runs/tlm_networks. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import ROOT, add_rows, environment, provenance, read_rows, result_file
from tlm_ablation import task_set
from tlm_instant import NETWORKS, end_to_end, task_by_task
from tune_retime import race as race_winners
from tune_vs_metaschedule import machine

SCRIPT = "tlm_networks"
PROPOSERS = ("tlm", "evolution", "portfolio")
FEWEST = 2  # systems of a race


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=("run", "race", "report"))
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--proposers", nargs="+", choices=PROPOSERS, default=list(PROPOSERS))
    parser.add_argument("--trials", nargs="+", type=int, default=[1, 10, 32], help="Of a task.")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--secs", type=float, default=0.4, help="Of a library and turn.")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / SCRIPT)
    parser.add_argument("--name", default=SCRIPT, help="Folder of the result file.")
    options = parser.parse_args()
    path = result_file(options.name, ".jsonl")
    if options.stage == "run":
        run(options, path)
    if options.stage == "race":
        race(options, path)
    if options.stage in ("race", "report"):
        report(path)


# -- run -------------------------------------------------------------------------------------------


def label(row: dict[str, Any]) -> str:
    return f"{row['proposer']}/{row['trials']}/{row['seed']}"


def run(options: argparse.Namespace, path: Path) -> None:
    here = machine()
    done = {(r["network"], label(r)) for r in read_rows(path) if "proposer" in r and is_of(r, here)}
    for network in options.networks:
        tasks = count_tasks(network)
        for seed in range(options.seeds):
            for proposer in options.proposers:
                before: Path | None = None
                for trials in sorted(options.trials):
                    row: dict[str, Any] = {"network": network, "proposer": proposer}
                    row |= {"trials": trials, "seed": seed, **here}
                    out = options.work / network / label(row).replace("/", "-")
                    if (network, label(row)) not in done:
                        row |= tuned(row, tasks, before, out)
                        about = {k: v for k, v in provenance().items() if k in ("date", "commit")}
                        add_rows(path, [{**row, **about}])
                        print(f"{network} {label(row)}: {row['secs']:.0f} s", flush=True)
                    before = out


def is_of(row: dict[str, Any], here: dict[str, str]) -> bool:
    return all(row.get(key) == value for key, value in here.items())


def count_tasks(network: str) -> int:
    from tensorese.targets import Target
    from tensorese.workloads import load_network, tasks_of

    return len(tasks_of(load_network(f"zoo:{network}"), Target.parse("host").to_json()))


def tuned(row: dict[str, Any], tasks: int, before: Path | None, out: Path) -> dict[str, Any]:
    """One command. `secs` is of this command alone; those before it came on top."""
    if before is not None and before.exists() and not out.exists():
        aside = out.with_name(f".{out.name}.copy")
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(before, aside)
        aside.rename(out)
    command = [sys.executable, "-m", "tensorese", "tune", f"zoo:{row['network']}"]
    command += ["--proposer", row["proposer"], "--trials", str(row["trials"] * tasks)]
    command += ["--seed", str(row["seed"]), "--out", str(out)]
    started = time.time()
    subprocess.run(command, check=True, env=environment(), stdout=subprocess.DEVNULL)
    secs = time.time() - started
    certificate = json.loads((out / "certificate.json").read_text())
    return {
        "tasks": tasks,
        "secs": secs,
        "run": os.path.relpath(out, ROOT),
        "verified": all(one["passed"] for one in certificate["verification"]["against"].values()),
    }


# -- race ------------------------------------------------------------------------------------------


def race(options: argparse.Namespace, path: Path) -> None:
    from tensorese.workloads import load_network

    here = machine()
    for name in options.networks:
        rows = [row for row in read_rows(path) if row.get("network") == name and is_of(row, here)]
        runs = {label(row): ROOT / row["run"] for row in rows if "proposer" in row}
        runs = {key: run for key, run in runs.items() if (run / "library.so").exists()}
        raced = [row for row in rows if "latency" in row]
        if len(runs) < FEWEST or any(set(runs) <= set(row["latency"]) for row in raced):
            continue
        network = load_network(f"zoo:{name}")
        tasks = task_by_task(network, runs, options.turns)
        for task in tasks.values():
            task.pop("origin")
        named = {key: key.replace("/", "-") for key in runs}  # what systems' files are called
        whole = {named[key]: run for key, run in runs.items()}
        latency = end_to_end(network, whole, options.turns, options.secs)
        about = {k: v for k, v in provenance().items() if k in ("date", "commit")}
        times = {key: latency[name]["latency"] for key, name in named.items()}
        row = {"network": name, "latency": times, "tasks": tasks, **here, **about}
        add_rows(path, [{**row, "stock": stock_beside(runs, options.turns)}])
        print(f"{name}: {len(runs)} libraries, {len(tasks)} tasks", flush=True)


def stock_beside(runs: dict[str, Path], turns: int) -> dict[str, dict[str, float]]:
    """Tasks of which MetaSchedule's winner is known here: its time beside those of all runs."""
    from tensorese.measure.tuning_farm import IN_NETWORK, TuningFarm
    from tensorese.records.run_folder import BEST, RunFolder
    from tensorese.targets import Target

    target, found = Target.parse("host"), {}
    best = {key: RunFolder.read(run).optional(BEST) for key, run in runs.items()}
    with TuningFarm(target, IN_NETWORK, platform=target.platform()) as farm:
        for workload, row in stock_rows().items():
            mine = {key: each[workload] for key, each in best.items() if workload in each}
            if mine:
                rows = {f"stock/{row['trials']}/0": row}
                rows |= {key: {"system": key, "winner": winner} for key, winner in mine.items()}
                task = next(t for t in task_set().values() if t.workload == workload)
                times = race_winners(farm, task, rows, turns)
                found[workload] = {key: one["latency"] for key, one in times.items()}
    return found


def stock_rows() -> dict[str, dict[str, Any]]:
    """By workload: MetaSchedule's longest run on this machine."""
    here, found = machine(), {}
    scripts = ("tune_vs_metaschedule", "tlm_trials")
    rows = [row for name in scripts for row in read_rows(result_file(name, ".jsonl"))]
    by_name = {name: task.workload for name, task in task_set().items()}
    for row in sorted(rows, key=lambda row: row.get("trials", 0)):
        if row.get("system") == "stock" and row["task"] in by_name and is_of(row, here):
            found[by_name[row["task"]]] = row
    return found


# -- report ----------------------------------------------------------------------------------------


def report(path: Path) -> None:
    rows = read_rows(path)
    lines = [
        "# Networks after few trials a task",
        "",
        "Speed over that of the fastest library of the network (end to end, libraries in turns) "
        "and over the least sum of tasks (weighted, programs in turns). Seconds: of all commands "
        "up to this number of trials, start, building and verifying included. Beside MetaSchedule: "
        "geometric mean of speed over its own, of the tasks whose stored winner it has here.",
        "",
        "| network | proposer | trials a task | end to end | sum of tasks | seconds | "
        "beside MetaSchedule (tasks) |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    last = {row["network"]: row for row in rows if "latency" in row}
    for name, raced in last.items():
        sums = sum_of_tasks(raced["tasks"], list(raced["latency"]))
        least, fastest = min(sums.values()), min(raced["latency"].values())
        for key in raced["latency"]:
            proposer, trials, _ = key.split("/")
            cells = [f"{fastest / raced['latency'][key]:.2f}", f"{least / sums[key]:.2f}"]
            cells += [f"{seconds_of(rows, raced, key):.0f}", beside(raced["stock"], key)]
            lines.append(f"| {name} | {proposer} | {trials} | " + " | ".join(cells) + " |")
    text = "\n".join([*lines, ""])
    path.with_suffix(".md").write_text(text)
    print(text)


def sum_of_tasks(tasks: dict[str, Any], labels: list[str]) -> dict[str, float]:
    """Over the tasks of which every run has a valid program; the others would flatter who fails."""
    whole = [task for task in tasks.values() if all(task["latency"].get(key) for key in labels)]
    return {key: sum(t["weight"] * t["latency"][key] for t in whole) for key in labels}


def seconds_of(rows: list[dict[str, Any]], raced: dict[str, Any], key: str) -> float:
    proposer, trials, seed = key.split("/")
    return sum(
        row["secs"]
        for row in rows
        if row.get("proposer") == proposer
        and (row["network"], row["machine"]) == (raced["network"], raced["machine"])
        and row["seed"] == int(seed)
        and row["trials"] <= int(trials)
    )


def beside(stock: dict[str, dict[str, float]], key: str) -> str:
    ratios = [
        secs / times[key]
        for times in stock.values()
        for name, secs in times.items()
        if name.startswith("stock") and key in times
    ]
    known = [ratio for ratio in ratios if ratio and math.isfinite(ratio)]
    return f"{statistics.geometric_mean(known):.2f} ({len(known)})" if known else ""


if __name__ == "__main__":
    main()
