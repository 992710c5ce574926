"""Whole networks on this CPU: tuned once by `tensorese tune`, then timed against torch and
onnxruntime on the same cores.

    python benchmarks/end_to_end.py tune [--minutes 10] [--network resnet18 ...]
    python benchmarks/end_to_end.py time [--times 3]
    python benchmarks/end_to_end.py report

`tune` goes on where it stopped (run folders under runs/end_to_end). `time` adds one row a network
and time to results/end_to_end.jsonl; rows are kept by network, minutes, time, machine, TVM and
library, and what is there is not run again. torch runs channels_last. All systems are processes
of their own, interleaved. The roofline is the peak of the cores, measured in the same minute.
Run it on a quiet machine.

The ONNX files are those inside the onnx package, whose weights are all alike; they get seeded
random ones, or no system's outputs could be compared with another's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common import RESULTS, ROOT, provenance, write_result
from tensorese.measure.peak import peak_gflops

NETWORKS = ("resnet18", "mobilenet_v2", "bert_tiny", "light_resnet50", "light_squeezenet")
WORK = ROOT / "runs" / "end_to_end"
ROWS = RESULTS / "end_to_end.jsonl"
KEY = ("network", "minutes", "time", "machine", "tvm", "library")
RIVALS = ("torch", "onnxruntime")
NEEDED = 0.85  # of the better rival's speed, on every network


def folder_of(network: str, minutes: float) -> Path:
    return WORK / f"{network}-{minutes:g}min"


def model_of(network: str) -> str:
    if not network.startswith("light_"):
        return f"zoo:{network}"
    path = WORK / f"{network}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with_random_weights(network, path)
    return str(path.relative_to(ROOT))


def with_random_weights(network: str, path: Path) -> None:
    """The graph as it is, each weight filled from a seed so that activations keep their size."""
    import numpy as np
    import onnx

    stored = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(str(stored / f"{network}.onnx"))
    random = np.random.default_rng(0)
    shapes = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = [int(extent) for extent in shapes[node.input[0]]]
        array = random.standard_normal(shape).astype(np.float32)
        if len(shape) > 1:
            array *= np.sqrt(2 / np.prod(shape[1:]))
        else:
            array = np.abs(array) * np.float32(0.1) + np.float32(0.5)  # scales and variances: > 0
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    read = {name for node in kept for name in node.input}
    unread = [one for one in model.graph.initializer if one.name not in read]
    for one in unread:
        model.graph.initializer.remove(one)
    onnx.save(model, str(path))


def tune(networks: list[str], minutes: float) -> None:
    for network in networks:
        command = [sys.executable, "-m", "tensorese", "tune", model_of(network)]
        command += ["--minutes", f"{minutes:g}", "--out", str(folder_of(network, minutes))]
        print("+", " ".join(command), flush=True)
        subprocess.run(command, cwd=ROOT, check=True)


def read_rows() -> list[dict[str, Any]]:
    if not ROWS.exists():
        return []
    return [json.loads(line) for line in ROWS.read_text().splitlines() if line.strip()]


def time_all(networks: list[str], minutes: float, times: int) -> None:
    """Networks in turn, so that the three times of one lie minutes apart."""
    from tensorese.deploy import bench_run
    from tensorese.deploy.build import sha256
    from tensorese.deploy.compile import Timing

    about = provenance()
    cpu = f"{about['machine']['cpu']}, {about['machine']['cores']} cores"
    have = {tuple(row[name] for name in KEY) for row in read_rows()}
    for turn in range(times):
        for network in networks:
            run = folder_of(network, minutes)
            if not (run / "library.so").exists():
                print(f"{network}: not tuned yet, left out")
                continue
            row = {
                "network": network,
                "minutes": minutes,
                "time": turn,
                "machine": cpu,
                "tvm": about["versions"]["apache-tvm"],
                "library": sha256(run / "library.so")[:16],
            }
            if tuple(row[name] for name in KEY) in have:
                continue
            row["peak_gflops"] = peak_gflops()
            found = bench_run(run, timing=Timing(rounds=9), untuned=turn == 0, unpacked=True)
            row |= {"flops": flops_of(run), "date": about["date"], "commit": about["commit"]}
            row |= {name: found[name] for name in ("latency", "explanation", "kernels", "absent")}
            RESULTS.mkdir(parents=True, exist_ok=True)
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            shown = {name: f"{one['latency'] * 1e3:.3f}" for name, one in row["latency"].items()}
            print(f"{network} {turn}: {shown}", flush=True)


def flops_of(run: Path) -> float:
    tasks = json.loads((run / "run.json").read_text())["tasks"]
    return sum(float(task["flops"]) * int(task["weight"]) for task in tasks)


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One network: medians over its times, and what costs most where it loses."""

    def median(name: str) -> float | None:
        found = [r["latency"][name]["latency"] for r in rows if name in r["latency"]]
        return statistics.median(found) if found else None

    names = ("tuned", "unpacked", "untuned", *RIVALS)
    latency = {name: median(name) for name in names}
    rivals = [found for name in RIVALS if (found := latency[name])]
    best, tuned, unpacked = min(rivals, default=None), latency["tuned"], latency["unpacked"]
    peak = statistics.median(row["peak_gflops"] for row in rows)
    last = rows[-1]
    return {
        "network": last["network"],
        "times": len(rows),
        "latency": latency,
        "speed": best / tuned if best and tuned else None,
        "speed_unpacked": best / unpacked if best and unpacked else None,
        "gap": statistics.median(row["explanation"]["gap"] for row in rows),
        "peak_gflops": peak,
        "of_roofline": last["flops"] / tuned / 1e9 / peak if tuned else None,
        "costliest": [
            {"kernel": k["kernel"], "share": k["secs"] / sum(x["secs"] for x in last["kernels"])}
            for k in last["kernels"][:5]
        ],
        "causes": last["explanation"]["causes"],
    }


def report(minutes: float) -> None:
    rows = [row for row in read_rows() if row["minutes"] == minutes]
    found = []
    for network in NETWORKS:
        mine = [row for row in rows if row["network"] == network]
        if mine:
            newest = [row for row in mine if row["library"] == mine[-1]["library"]]
            found.append(summarise(newest))
    if not found:
        print("no rows yet: tune, then time")
        return
    ahead = sum((one["speed"] or 0) >= 1 for one in found)
    enough = all(
        (one[name] or 0) >= NEEDED for one in found for name in ("speed", "speed_unpacked")
    )
    result = {"networks": found, "ahead": ahead, "all_at_least": NEEDED, "all_enough": enough}
    print(write_result("end_to_end", result))
    Console(width=140).print(table_of(found))
    for one in found:
        if (one["speed"] or 0) < 1:
            costly = ", ".join(f"{k['kernel']} {100 * k['share']:.0f} %" for k in one["costliest"])
            print(f"{one['network']} loses; it costs most in: {costly}")


def table_of(found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    columns = ("network", "tuned", "unpacked", "torch", "onnxruntime", "untuned")
    for column in (*columns, "speed", "unpacked speed", "of roofline", "gap to tasks"):
        table.add_column(column, justify="left" if column == "network" else "right")
    for one in found:
        cells = [_ms(one["latency"][name]) for name in columns[1:]]
        ratios = [f"{one[n]:.2f}x" if one[n] else "-" for n in ("speed", "speed_unpacked")]
        share, gap = 100 * (one["of_roofline"] or 0), 100 * one["gap"]
        table.add_row(one["network"], *cells, *ratios, f"{share:.0f} %", f"{gap:+.0f} %")
    return table


def _ms(secs: float | None) -> str:
    return f"{secs * 1e3:.3f}" if secs else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("step", choices=("tune", "time", "report", "all"))
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    if given.step in ("tune", "all"):
        tune(given.network, given.minutes)
    if given.step in ("time", "all"):
        time_all(given.network, given.minutes, given.times)
    if given.step != "tune":
        report(given.minutes)


if __name__ == "__main__":
    main()
