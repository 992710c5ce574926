"""Networks people have, tuned for three minutes each, beside onnxruntime and OpenVINO in float32.

    python benchmarks/wild.py [--minutes 3] [--networks minilm unet ...] [--work FOLDER]

Every network is tuned by the command a user types, timed from start to end, and then raced in turns
with the others on the same cores. Rows are kept: networks that are not named stay as they were.
Needs `pip install -e '.[wild]'`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import RESULTS, machine_name, provenance, write_result
from tensorese.deploy.arena import Arena
from tensorese.deploy.disturbance import others, read_clocks
from tensorese.deploy.folder import read_run
from tensorese.deploy.verdict import compare, rival_limits, tolerance
from tensorese.targets import Target
from tensorese.workloads import load_network
from wild_networks import NAMES, model_of

RIVALS = ("onnxruntime", "openvino")
ROUNDS, SECS = 9, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--networks", nargs="*", choices=NAMES, default=list(NAMES))
    parser.add_argument(
        "--work", type=Path, help="Where exported files and runs go; a folder that is removed else."
    )
    parser.add_argument("--race", action="store_true", help="Only race again what --work holds.")
    options = parser.parse_args()
    machine = machine_name()
    with tempfile.TemporaryDirectory(prefix="tensorese-wild-") as scratch:
        folder = options.work or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.networks:
            if options.race:
                row = raced_again(known_rows(machine)[name], name, folder)
            else:
                row = measured(name, folder, options.minutes)
            rows = {**known_rows(machine), name: {**row, **provenance()}}
            print(table({name: row}), flush=True)
            (RESULTS / "wild").mkdir(parents=True, exist_ok=True)
            write_result("wild", {"platform": machine, "networks": rows}, machine)
    print(table(known_rows(machine)))


def known_rows(machine: str) -> dict[str, Any]:
    path = RESULTS / "wild" / f"{machine}.json"
    rows: dict[str, Any] = json.loads(path.read_text())["networks"] if path.exists() else {}
    return rows


def measured(name: str, folder: Path, minutes: float) -> dict[str, Any]:
    model = model_of(name, folder)
    run = folder / name
    shutil.rmtree(run, ignore_errors=True)  # an earlier run would be gone on with, not measured
    command = [sys.executable, "-m", "tensorese", "tune", model]
    started = time.time()
    done = subprocess.run(
        [*command, "--minutes", f"{minutes:g}", "--out", str(run)], check=False, text=True
    )
    row: dict[str, Any] = {"minutes": minutes, "seconds": time.time() - started}
    if done.returncode:
        return {**row, "failed": f"exit code {done.returncode}"}
    certificate = json.loads((run / "certificate.json").read_text())
    tasks = certificate["tasks"]
    checks = certificate["verification"]
    row |= {
        "tuned_tasks": len(tasks["tuned"]),
        "untuned_tasks": len(tasks["untuned"]),
        "replaced": [one["name"] for one in checks["replaced"].values()],
        "against": checks["against"],
    }
    return row | raced(run, model, certificate)


def raced_again(row: dict[str, Any], name: str, folder: Path) -> dict[str, Any]:
    certificate = json.loads((folder / name / "certificate.json").read_text())
    return row | raced(folder / name, model_of(name, folder), certificate)


def raced(run: Path, model: str, certificate: dict[str, Any]) -> dict[str, Any]:
    """The library beside its rivals, in turns; one whose outputs differ is no rival."""
    found = read_run(run)
    inputs = load_network(model).example(0)
    depth = {key: certificate["verification"][key] for key in ("kernels", "reduction")}
    with (
        tempfile.TemporaryDirectory(prefix="tensorese-") as scratch,
        Arena(Path(scratch), [inputs], Target.from_json(found.target).threads) as arena,
    ):
        signature = certificate["signature"]
        library = {"kind": "library", "library": str(found.library), "signature": signature}
        arena.add("tensorese", library)
        for name in RIVALS:
            arena.add(name, {"kind": name, "model": model}, optional=True)
        want = arena.outputs("tensorese")
        allowed = rival_limits(want, [tolerance(str(one.dtype), **depth) for one in want])
        for name in [one for one in RIVALS if one in arena.contenders]:
            verdict = compare(arena.outputs(name), want, allowed)
            if not verdict.passed:
                arena.drop(name, f"not compared: {verdict.note}")
        before = read_clocks(arena.processes)
        latency = arena.time(ROUNDS, SECS)
        disturbed = others(before, read_clocks(arena.processes))
        return {"latency": latency, "absent": dict(arena.absent), "disturbed": disturbed}


def table(rows: dict[str, Any]) -> str:
    head = ["network", "tensorese", *RIVALS, "best rival / ours", "seconds"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, row in rows.items():
        latency = row.get("latency", {})
        ms = {key: 1e3 * float(value["latency"]) for key, value in latency.items()}
        rivals = [ms[key] for key in RIVALS if key in ms]
        ratio = f"{min(rivals) / ms['tensorese']:.2f}" if rivals and "tensorese" in ms else "-"
        cells = [f"{ms[key]:.2f} ms" if key in ms else "-" for key in ("tensorese", *RIVALS)]
        said = row.get("failed") or ("disturbed" if row.get("disturbed") else "")
        lines.append(
            "| " + " | ".join([name, *cells, ratio, f"{row['seconds']:.0f} {said}"]) + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
