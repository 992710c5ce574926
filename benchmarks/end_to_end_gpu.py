"""ResNet-50 and BERT-base on a GPU: tuned by `tensorese tune --target cuda`, against torch eager
and `torch.compile`, TF32 off and on.

    python benchmarks/end_to_end_gpu.py [--minutes 1.5] [--out FOLDER] [--network resnet50]

Our kernels are float32 without tensor cores, so the column to compare with is TF32 off; the other
shows what that choice costs. Every system is a process of its own with its input on the device;
torch's are loaded when the last network is tuned, then all take turns, one running at a time.
One row a system goes to FOLDER/MACHINE.jsonl, kept in benchmarks/results/end_to_end_gpu.
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

from common import add_rows, environment, machine_name, provenance

NETWORKS = ("resnet50", "bert_base")
TORCH = ("eager", "compile", "compile-graphs")
ROUNDS, RUNS = 5, 30


class Child:
    """One system: it says `ready`, then gives the seconds of some runs for each line it reads."""

    def __init__(self, name: str, log: Path, *arguments: str) -> None:
        self.name = name
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, __file__, "child", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            env=environment(),
        )
        self.samples: list[list[float]] = []

    def ask(self) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            last = self.log.read_text().strip().splitlines()[-1:]
            raise RuntimeError(f"{self.name} died: {' '.join(last)[:300]}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def turn(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.samples.append(self.ask()["secs"])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def child(kind: str, network: str, setting: str) -> None:
    """`setting`: a run folder for ours, `tf32` or `fp32` for torch."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    call, want = (ours if kind == "ours" else in_torch)(kind, network, setting)
    replies.write(json.dumps({"ready": True, **want}) + "\n")
    replies.flush()
    for _ in sys.stdin:
        secs = []
        for _ in range(RUNS):
            started = time.perf_counter()
            call()
            secs.append(time.perf_counter() - started)
        replies.write(json.dumps({"secs": secs}) + "\n")
        replies.flush()


Loaded = tuple[Callable[[], Any], dict[str, Any]]


def inputs_of(network: str) -> list[Any]:
    import numpy as np
    import torch

    random = np.random.default_rng(0)
    if network.startswith("bert"):
        return [torch.from_numpy(random.integers(1000, size=(1, 128))).cuda()]
    return [torch.from_numpy(random.standard_normal((1, 3, 224, 224), np.float32)).cuda()]


def fingerprint(outputs: Any) -> dict[str, Any]:
    """Enough of the first output to see that two systems computed the same."""
    first = outputs[0] if isinstance(outputs, tuple | list) else outputs
    if isinstance(first, dict) or hasattr(first, "to_tuple"):
        first = next(iter(first.values()))
    values = first.float().flatten()
    return {"largest": float(values.abs().max()), "values": values[:8].tolist()}


def ours(_kind: str, network: str, run: str) -> Loaded:
    from tensorese import load

    library = load(run)
    import torch

    inputs = inputs_of(network)

    def call() -> Any:
        return library(*inputs)

    for _ in range(3):
        outputs = call()
    torch.cuda.synchronize()
    return call, fingerprint(outputs)


def in_torch(kind: str, network: str, precision: str) -> Loaded:
    import torch

    from tensorese.workloads import zoo

    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    module, inputs = zoo.build(network).cuda(), inputs_of(network)
    if network.startswith("resnet"):
        module = module.to(memory_format=torch.channels_last)
        inputs = [one.contiguous(memory_format=torch.channels_last) for one in inputs]
    if kind != "eager":
        mode = "reduce-overhead" if kind == "compile-graphs" else "default"
        module = torch.compile(module, mode=mode)

    def call() -> Any:
        with torch.inference_mode():
            outputs = module(*inputs)
        torch.cuda.synchronize()
        return outputs

    for _ in range(5):
        outputs = call()
    return call, fingerprint(outputs)


def tune(network: str, minutes: float, work: Path) -> None:
    command = [sys.executable, "-m", "tensorese", "tune", f"zoo:{network}", "--target", "cuda"]
    command += ["--minutes", f"{minutes:g}", "--out", str(work / network), "--no-compile"]
    with (work / f"{network}.log").open("w") as log:
        subprocess.run(command, env=environment(), stdout=log, stderr=log, check=True)


def compiling(network: str, work: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tensorese", "compile", str(work / network)]
    with (work / f"{network}-compile.log").open("w") as log:
        return subprocess.Popen(command, env=environment(), stdout=log, stderr=log)


def torch_children(network: str, work: Path) -> list[Child]:
    return [
        Child(f"torch {kind} {how}", work / f"{network}-{kind}-{how}.err", kind, network, how)
        for kind in TORCH
        for how in ("fp32", "tf32")
    ]


def ready(children: list[Child]) -> dict[str, dict[str, Any]]:
    """What each computed; who does not come up is named and left out."""
    answers = {}
    for one in list(children):
        try:
            answers[one.name] = one.ask()
        except RuntimeError as error:
            print(error, flush=True)
            children.remove(one)
    return answers


def race(network: str, children: list[Child], minutes: float, rows: Path) -> None:
    outputs = ready(children)
    for turn in range(ROUNDS):
        at = turn % max(len(children), 1)
        for one in children[at:] + children[:at]:
            one.turn()
    about = provenance()
    for one in children:
        medians = [statistics.median(samples) for samples in one.samples]
        row = {
            "network": network,
            "system": one.name,
            "latency": statistics.median(medians),
            "rounds": medians,
            "minutes": minutes,
            "outputs": outputs[one.name],
            **about,
        }
        add_rows(rows, [row])
        print(f"{network} {one.name}: {1e3 * row['latency']:.3f} ms", flush=True)
        one.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.5)
    out = Path(os.environ.get("OUT", "runs/end_to_end_gpu"))
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    work = args.out / "work"
    work.mkdir(exist_ok=True)
    builds = {}
    for network in args.network:
        tune(network, args.minutes, work)
        builds[network] = compiling(network, work)
    systems = {network: torch_children(network, work) for network in args.network}
    for network in args.network:
        if builds[network].wait() == 0:
            run = str(work / network)
            log = work / f"{network}-ours.err"
            systems[network].insert(0, Child("ours fp32", log, "ours", network, run))
        else:
            print((work / f"{network}-compile.log").read_text()[-600:], flush=True)
    for network in args.network:
        rows = args.out / f"{machine_name(gpu=True)}.jsonl"
        race(network, systems[network], args.minutes, rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:5])
    else:
        main()
