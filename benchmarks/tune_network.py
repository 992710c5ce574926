"""ResNet-18 with equal minutes: stock relax tuning and ours, timed together.

Both tune tasks of the same prepared graph, and both sets of winners go through the same
deployment; only ours may compute 3x3 convolutions by Winograd's algorithm. Stock gets small
rounds: with its default of 64 trials it would not reach most tasks in ten minutes. It records a
task's results when it comes to the task again, after all others: on 2 cores that is 15 minutes for
ResNet-18's 20 tasks, so fewer minutes show nothing but that.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT, environment, write_result

NETWORK = "zoo:resnet18"
WORK = ROOT / "runs" / "tune_network"
STOCK_ROUND = 16


def compare(minutes: float) -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    ours, stock = WORK / f"ours-{minutes:g}", WORK / f"stock-{minutes:g}"
    if not (ours / "certificate.json").exists():
        command = [sys.executable, "-m", "tensorese", "tune", NETWORK, "--model", "none"]
        options = ["--minutes", str(minutes), "--out", str(ours)]
        subprocess.run([*command, *options], env=environment(), check=True)
    if not (stock / "certificate.json").exists():
        if not (stock / "tuned").exists():
            _tune_stock(stock, minutes)
            (stock / "tuned").touch()
        _adopt(ours, stock)
    result = {
        "network": NETWORK,
        "minutes": minutes,
        "latency": _race({"ours": ours, "stock": stock}),
        "tasks_tuned": {
            p.name: len(json.loads((p / "best.json").read_text())) for p in (ours, stock)
        },
    }
    write_result("tune_network", result)
    print(json.dumps(result["latency"], indent=1))


def _tune_stock(folder: Path, minutes: float) -> None:
    """Until the time is up, from the start of its process; its database is on disk all along."""
    folder.mkdir(parents=True, exist_ok=True)
    cores = str(len(os.sched_getaffinity(0)))
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            stdout=log,
            stderr=log,
            env={**environment(), "TVM_NUM_THREADS": cores},
            start_new_session=True,
        )
        try:
            process.wait(timeout=60 * minutes)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _adopt(ours: Path, stock: Path) -> None:
    """Stock's database as a run folder, compiled and verified as ours is."""
    from tensorese.deploy import compile_run
    from tensorese.records.importers.detect import read_records
    from tensorese.records.importers.lines import Skipped
    from tensorese.records.nouns import Status
    from tensorese.search.loop.finalists import Winner
    from tensorese.workloads import load_network, tasks_of

    head = json.loads((ours / "run.json").read_text())
    head["config"] |= {"winograd": False}
    head["tasks"] = [
        {
            "workload": task.workload.id,
            **{key: getattr(task, key) for key in ("name", "operator", "weight", "flops")},
        }
        for task in tasks_of(load_network(NETWORK), head["target"])
    ]
    tasks = {task["workload"]: task for task in head["tasks"]}
    best: dict[str, Any] = {}
    for measurement in read_records(
        stock / "work", head["platform"], skipped=Skipped(allowed=True)
    ):
        id_ = measurement.program.workload.id
        if measurement.status is Status.OK and id_ in tasks:
            if id_ not in best or measurement.latency < best[id_].latency:
                best[id_] = Winner(measurement=measurement, latency=measurement.latency)
    named = ("name", "weight", "flops")
    entries = {
        id_: {**winner.to_dict(), **{key: tasks[id_][key] for key in named}}
        for id_, winner in best.items()
    }
    (stock / "best.json").write_text(json.dumps(entries))
    (stock / "run.json").write_text(json.dumps(head))
    compile_run(stock, on_step=print)


def _race(runs: dict[str, Path]) -> dict[str, Any]:
    from tensorese.deploy.arena import Arena
    from tensorese.targets import Target
    from tensorese.workloads import load_network

    certificates = {n: json.loads((p / "certificate.json").read_text()) for n, p in runs.items()}
    inputs = load_network(NETWORK).example(0)
    threads = Target.from_json(certificates["ours"]["target"]).threads
    with (
        tempfile.TemporaryDirectory() as scratch,
        Arena(Path(scratch), [inputs], threads) as arena,
    ):
        for name, path in runs.items():
            signature = certificates[name]["signature"]
            spec = {"kind": "library", "library": str(path / "library.so"), "signature": signature}
            arena.add(name, spec)
            arena.outputs(name)
        arena.add("torch", {"kind": "torch", "model": NETWORK}, optional=True)
        return arena.time(rounds=15, secs=0.5)


def _stock(folder: Path) -> None:
    from tensorese.targets import Target
    from tensorese.workloads import load_network, prepare

    target = Target.parse("host").to_json()
    module = prepare(load_network(NETWORK).module, target)
    for name in [n for n in sys.modules if n.startswith("tvm.s_tir.tensor_intrin.")]:
        if getattr(sys.modules[name], "__tensorese_stub__", False):
            del sys.modules[name]  # stock sees TVM as it is
    import tvm
    from tvm.s_tir import meta_schedule as ms

    print(f"{time.time():.0f} tuning", flush=True)
    ms.relax_integration.tune_relax(
        mod=module,
        params={},
        target=tvm.target.Target(json.loads(target)),
        work_dir=str(folder / "work"),
        max_trials_global=1_000_000,
        num_trials_per_iter=STOCK_ROUND,
        builder=ms.builder.LocalBuilder(timeout_sec=120.0),
        cost_model="xgb",
        seed=0,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Stock's side; tune_vs_metaschedule.py runs both.")
    parser.add_argument("folder", type=Path)
    _stock(parser.parse_args().folder)
