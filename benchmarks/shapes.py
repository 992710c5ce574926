"""One library for several shapes against a library of its own for each, timed in turn.

    python benchmarks/shapes.py run [--network bert_tiny] [--shapes 1x32 1x64 ...] [--trials 400]

The own libraries are tuned after the common one, each with its share of the trials and with all
that the common run found (a store of this benchmark's own): they are never worse informed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import ROOT, environment, write_result


def tune(model: str, out: Path, trials: int, store: Path) -> None:
    if (out / "certificate.json").exists():
        return
    command = [sys.executable, "-m", "tensorese", "tune", model, "--trials", str(trials)]
    place = {"TENSORESE_STORE": str(store)}
    subprocess.run([*command, "--out", str(out)], env={**environment(), **place}, check=True)


def race(common: Path, own: Path, at: int, rounds: int) -> dict[str, Any]:
    """Latencies of one shape, in turn; `at` is its place in the common library."""
    from tensorese.deploy.arena import Arena
    from tensorese.targets import Target
    from tensorese.workloads import load_network

    certificates = {p: json.loads((p / "certificate.json").read_text()) for p in (common, own)}
    signatures = {
        common: certificates[common]["signatures"][at],
        own: certificates[own]["signature"],
    }
    inputs = load_network(certificates[own]["model"]).example(0)
    threads = Target.from_json(signatures[own]["target"]).threads
    with tempfile.TemporaryDirectory() as scratch, Arena(Path(scratch), [inputs], threads) as arena:
        for name, run in (("common", common), ("own", own)):
            library = {"kind": "library", "library": str(run / "library.so")}
            arena.add(name, {**library, "signature": signatures[run]})
            arena.outputs(name)
        latency: dict[str, Any] = arena.time(rounds=rounds, secs=0.4)
    sizes = {n: certificates[r]["library"]["bytes"] for n, r in (("common", common), ("own", own))}
    return {"latency": latency, "bytes": sizes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run"])
    parser.add_argument("--network", default="bert_tiny")
    parser.add_argument("--shapes", nargs="+", default=["1x32", "1x64", "1x128", "1x256"])
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "shapes")
    options = parser.parse_args()
    from tensorese.workloads.variants import braced

    models = [f"zoo:{options.network}@{shape}" for shape in options.shapes]
    store, common = options.out / "store", options.out / "common"
    tune(braced(models), common, options.trials, store)
    rows = []
    print("| shape | common ms | own ms | common / own |\n|---|---|---|---|")
    for at, model in enumerate(models):
        own = options.out / options.shapes[at]
        tune(model, own, options.trials // len(models), store)
        row = {"model": model, **race(common, own, at, options.rounds)}
        ms = {name: one["latency"] * 1e3 for name, one in row["latency"].items()}
        ratio = ms["common"] / ms["own"]
        print(f"| {options.shapes[at]} | {ms['common']:.3f} | {ms['own']:.3f} | {ratio:.3f} |")
        rows.append(row)
    sizes = [row["bytes"] for row in rows]
    total = sum(one["own"] for one in sizes)
    print(f"common: {sizes[0]['common'] / 1e6:.1f} MB; its own together: {total / 1e6:.1f} MB")
    write_result("shapes", {"network": options.network, "trials": options.trials, "rows": rows})


if __name__ == "__main__":
    main()
