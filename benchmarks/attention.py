"""Attention alone: in one kernel, operator by operator, and by others, timed in turns.

    python benchmarks/attention.py [--shapes 6x1500 12x512 6x197 12x128] [--trials 60] [--rounds 15]

softmax(q k^T / 8) v of so many heads and rows, 64 columns, tuned with and without
`--no-attention` (runs under runs/attention), then raced with what else is installed, in float32 on
the same cores. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from common import ROOT, environment, write_result
from tensorese.deploy.arena import Arena
from tensorese.deploy.systems import quick
from tensorese.targets import Target
from tensorese.workloads import load_network

SIZE = 64
WAYS: dict[str, tuple[str, ...]] = {"one kernel": (), "operators": ("--no-attention",)}


class Attention(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-2, -1) / SIZE**0.5, dim=-1) @ v


def exported(shape: str, folder: Path) -> Path:
    path = folder / f"{shape}.pt2"
    if not path.exists():
        heads, rows = map(int, shape.split("x"))
        inputs = tuple(torch.randn(1, heads, rows, SIZE) for _ in "qkv")
        folder.mkdir(parents=True, exist_ok=True)
        torch.export.save(torch.export.export(Attention().eval(), inputs), path)
    return path


def tuned(model: Path, way: str, trials: int) -> Path:
    out = model.with_name(f"{model.stem}-{way.replace(' ', '-')}")
    if not (out / "certificate.json").exists():
        command = [sys.executable, "-m", "tensorese", "tune", str(model), *WAYS[way]]
        command += ["--trials", str(trials), "--out", str(out)]
        subprocess.run(command, env=environment(), check=True)
    return out


def race(model: Path, runs: dict[str, Path], rounds: int) -> dict[str, Any]:
    certificates = {n: json.loads((r / "certificate.json").read_text()) for n, r in runs.items()}
    if not certificates["one kernel"]["attention"]:
        print(f"{model.stem}: tune chose operators")
    signatures = {name: one["signature"] for name, one in certificates.items()}
    threads = Target.from_json(signatures["operators"]["target"]).threads
    inputs = load_network(str(model)).example(0)
    with tempfile.TemporaryDirectory() as scratch, Arena(Path(scratch), [inputs], threads) as arena:
        for name, run in runs.items():
            library = {"kind": "library", "library": str(run / "library.so")}
            arena.add(name, {**library, "signature": signatures[name]})
        arena.add_rivals({name: {"kind": name, "model": str(model)} for name in quick()})
        for name in arena.contenders:
            arena.outputs(name)
        latency: dict[str, Any] = arena.time(rounds=rounds, secs=0.4)
    used = {n: c["attention"] for n, c in certificates.items()}
    return {"shape": model.stem, "in_one_kernel": used, "latency": latency}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["6x1500", "12x512", "6x197", "12x128"])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "attention")
    options = parser.parse_args()
    rows = []
    for shape in options.shapes:
        model = exported(shape, options.work)
        runs = {way: tuned(model, way, options.trials) for way in WAYS}
        rows.append(race(model, runs, options.rounds))
        ms = {name: f"{1e3 * one['latency']:.3f}" for name, one in rows[-1]["latency"].items()}
        print(f"{shape}: {ms}", flush=True)
        write_result("attention", {"size": SIZE, "trials": options.trials, "rows": rows})


if __name__ == "__main__":
    main()
