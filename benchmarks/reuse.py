"""How many trials a second run needs to the same latency, with what a first found and without.

    python benchmarks/reuse.py run [--trials 200] [--out runs/reuse] [--pair FIRST SECOND]...
    python benchmarks/reuse.py report [--out runs/reuse]

A pair is one network twice, or two with layers in common. The second is tuned twice with equal
trials: alone, and knowing what the first run left in a store of this benchmark's own. The sum of
tasks (weight times best latency so far) is followed over the trials of both; reported is after how
many trials the one with a store is as fast as the one without was at its end. Times of two runs
differ by the machine's noise, so the libraries themselves are timed by the certificates.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import ROOT, environment, write_result

PAIRS = (
    ("zoo:bert_tiny", "zoo:bert_tiny"),
    ("zoo:bert_tiny", "zoo:bert_mini"),
    ("zoo:resnet18", "zoo:resnet50"),
)
NEAR = 1.02
"""Times the latency to reach: two timings of one program differ by as much."""


def tune(network: str, out: Path, trials: int, store: Path | None) -> None:
    if (out / "certificate.json").exists():
        return
    command = [sys.executable, "-m", "tensorese", "tune", network, "--trials", str(trials)]
    place = {"TENSORESE_STORE": "off" if store is None else str(store)}
    subprocess.run([*command, "--out", str(out)], env={**environment(), **place}, check=True)


def curve(run: Path) -> list[tuple[int, float]]:
    """Trials of a run so far, and the seconds of its tasks together, from when all are tuned."""
    head = json.loads((run / "run.json").read_text())
    weights = {task["workload"]: task["weight"] for task in head["tasks"]}
    best: dict[str, float] = {}
    points = []
    for line in (run / "batches.jsonl").read_text().splitlines():
        batch = json.loads(line)
        if batch["best"] is not None:
            best[batch["task"]] = batch["best"]
        if len(best) == len(weights):
            points.append((batch["trials"], sum(weights[id_] * s for id_, s in best.items())))
    return points


def row(first: str, second: str, folder: Path) -> dict[str, Any]:
    """`needed` trials make the second run as fast as it is without a store at its end."""
    known, alone = curve(folder / "known"), curve(folder / "alone")
    goal = alone[-1][1]
    reached = {
        name: next((n for n, secs in points if secs <= NEAR * goal), None)
        for name, points in (("known", known), ("alone", alone))
    }
    certificates = {
        name: json.loads((folder / name / "certificate.json").read_text())
        for name in ("known", "alone")
    }
    tasks = certificates["known"].get("known", {})
    return {
        "first": first,
        "second": second,
        "tasks": len(json.loads((folder / "known" / "run.json").read_text())["tasks"]),
        "known_tasks": len(tasks),
        "kept": sum(bool(one["found_by"]) for one in tasks.values()),
        "trials": {"known": known[-1][0], "alone": alone[-1][0]},
        "needed": reached,
        "sum_of_tasks": {"known": known[-1][1], "alone": goal},
        "latency": {n: c["latency"]["tuned"]["latency"] for n, c in certificates.items()},
    }


def run(pairs: list[tuple[str, str]], out: Path, trials: int) -> None:
    for first, second in pairs:
        folder = folder_of(out, first, second)
        store = folder / "store"
        if not (folder / "first" / "certificate.json").exists():
            shutil.rmtree(store, ignore_errors=True)
        tune(first, folder / "first", trials, store)
        tune(second, folder / "known", trials, store)
        tune(second, folder / "alone", trials, None)


def report(pairs: list[tuple[str, str]], out: Path, trials: int) -> None:
    done = [p for p in pairs if (folder_of(out, *p) / "alone" / "certificate.json").exists()]
    rows = [row(*pair, folder_of(out, *pair)) for pair in done]
    print(
        "| first | then | tasks known | trials alone | known | to the same sum | ms alone | known |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for one in rows:
        trials_of, ms = one["trials"], {n: s * 1e3 for n, s in one["latency"].items()}
        print(
            f"| {one['first']} | {one['second']} | {one['known_tasks']} of {one['tasks']} "
            f"| {trials_of['alone']} | {trials_of['known']} | {one['needed']['known']} "
            f"| {ms['alone']:.3f} | {ms['known']:.3f} |"
        )
    write_result("reuse", {"trials": trials, "near": NEAR, "rows": rows})


def folder_of(out: Path, first: str, second: str) -> Path:
    return out / f"{first.removeprefix('zoo:')}-{second.removeprefix('zoo:')}".replace(os.sep, "_")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "reuse")
    parser.add_argument("--pair", nargs=2, action="append", metavar=("FIRST", "SECOND"))
    options = parser.parse_args()
    pairs = [(first, second) for first, second in options.pair or PAIRS]
    if options.what == "run":
        run(pairs, options.out, options.trials)
    report(pairs, options.out, options.trials)


if __name__ == "__main__":
    main()
