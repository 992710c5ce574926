"""Whole networks on a GPU: tuned for two minutes, then beside every way of running torch.

    python benchmarks/h200.py run [--networks resnet50 ...] [--minutes 2] [--out FOLDER]
    python benchmarks/h200.py report [--machine h200]

`run` tunes each network by the command line, as a user would, then has `bench` time the library
and torch (eager, `torch.compile`, with CUDA graphs; float32, TF32, float16, bfloat16) in turn, all
with inputs and outputs on the device. Beside that: the sum of the kernels by the GPU's own
counters, the time of a call between events, and what Python adds to a call. One row a network
goes to FOLDER/MACHINE.jsonl, kept in benchmarks/results/h200. Our kernels are float32 without
tensor cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import RESULTS, add_rows, environment, machine_name, provenance, read_rows

NETWORKS = ("resnet50", "bert_base", "mobilenet_v2", "gpt2")
PRECISIONS = ("float32", "TF32", "float16", "bfloat16")
CALLS = 300


def tuned(network: str, minutes: float, run: Path) -> dict[str, Any]:
    """The command a user types, and how long it takes altogether."""
    command = [sys.executable, "-m", "tensorese", "tune", f"zoo:{network}", "--target", "cuda"]
    command += ["--minutes", f"{minutes:g}", "--out", str(run), "--json"]
    started = time.monotonic()
    with (run.parent / f"{network}.log").open("w") as log:
        code = subprocess.run(command, env=environment(), stdout=log, stderr=log).returncode
    secs = time.monotonic() - started
    if code:
        raise RuntimeError((run.parent / f"{network}.log").read_text()[-600:])
    lines = [json.loads(line) for line in (run / "batches.jsonl").read_text().splitlines()]
    certificate = json.loads((run / "certificate.json").read_text())
    return {
        "tune_secs": secs,
        "trials": lines[-1]["trials"],
        "first_trial_secs": lines[0]["secs"],
        "last_trial_secs": lines[-1]["secs"],
        "compile_secs": certificate["seconds"],
        "verification": certificate["verification"],
    }


def wrapper(run: Path) -> dict[str, float]:
    """Seconds of a call by `library(...)`, and of the machine's own function and a wait."""
    from tensorese import load
    from tensorese.tvm_env import import_tvm

    import_tvm("cuda")
    import torch

    library = load(run)
    inputs = [
        (
            torch.ones(one.shape, dtype=torch.int64)
            if one.dtype.startswith("int")
            else torch.randn(one.shape)
        ).cuda()
        for one in library.signature.inputs
    ]
    placed = library.placed([one.cpu().numpy() for one in inputs])
    machine, device = library.machine["main"], library.device

    def bare() -> Any:
        outputs = machine(*placed)
        device.sync()
        return outputs

    ways: dict[str, Callable[[], Any]] = {
        "machine": bare,
        "placed": lambda: library(*placed),
        "tensors": lambda: library(*inputs),
    }
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(CALLS + 20):
        for name, call in ways.items():
            started = time.perf_counter()
            kept = call()
            if turn >= 20:
                samples[name].append(time.perf_counter() - started)
            del kept
    return {name: statistics.median(secs) for name, secs in samples.items()}


def row_of(network: str, minutes: float, work: Path) -> dict[str, Any]:
    from tensorese.deploy import bench_run
    from tensorese.deploy.compile import Timing

    run = work / network
    row = {"network": network, "minutes": minutes, **tuned(network, minutes, run)}
    print(f"{network}: {row['trials']} trials, {row['tune_secs']:.1f} s in all", flush=True)
    child = [sys.executable, __file__, "wrapper", "--out", str(run)]
    asked = subprocess.run(child, env=environment(), capture_output=True, text=True)
    row["call"] = json.loads(asked.stdout.splitlines()[-1]) if asked.returncode == 0 else {}
    if not row["call"]:
        print(asked.stderr[-600:], flush=True)
    started = time.monotonic()
    result = bench_run(run, timing=Timing(rounds=3, secs=0.15), on_step=lambda s: print(s[:90]))
    row["bench_secs"] = time.monotonic() - started
    return {
        **row,
        "latency": {name: one["latency"] for name, one in result["latency"].items()},
        "spread": {name: one["spread"] for name, one in result["latency"].items()},
        "absent": result["absent"],
        "explanation": result["explanation"],
        "from_host": result["from_host"],
        "kernels": result["kernels"],
        **provenance(),
    }


def run(networks: list[str], minutes: float, out: Path) -> None:
    work = out / "work"
    work.mkdir(parents=True, exist_ok=True)
    rows = out / f"{machine_name(gpu=True)}.jsonl"
    for network in networks:
        try:
            add_rows(rows, [made := row_of(network, minutes, work)])
        except Exception as error:  # the others are worth having
            print(f"{network} failed: {error}", flush=True)
            continue
        for line in table([made])[2:]:
            print(line, flush=True)
        print(made["explanation"], made["call"], made["absent"], flush=True)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Milliseconds; of torch's three ways the fastest in each precision."""
    heads = ["network", "Tensorese float32", *(f"torch {one}" for one in PRECISIONS)]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for row in rows:
        cells = [row["network"], f"{1e3 * row['latency']['tuned']:.2f}"]
        for precision in PRECISIONS:
            ways = {
                name.rpartition(", ")[0].removeprefix("torch"): secs
                for name, secs in row["latency"].items()
                if name.endswith(f", {precision}")
            }
            best = min(ways, key=lambda way: ways[way], default="")
            way = best.strip("., ").replace("compile, ", "") or "eager"
            cells.append(f"{1e3 * ways[best]:.2f} ({way})" if ways else "-")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=("run", "report", "wrapper"))
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "runs/h200")))
    args = parser.parse_args()
    if args.stage == "wrapper":
        print(json.dumps(wrapper(args.out)))
    elif args.stage == "run":
        run(args.networks, args.minutes, args.out)
    else:
        print(*table(read_rows(RESULTS / "h200" / f"{args.machine}.jsonl")), sep="\n")


if __name__ == "__main__":
    main()
