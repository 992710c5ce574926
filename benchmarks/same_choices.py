"""Whether two trees choose the same programs: a tuning run replayed over stored measurements.

    python benchmarks/same_choices.py BEFORE AFTER

Each tree runs its own tests/search/driver_replayed_run.py at its fixed seed; then every batch
(programs, origins, scores, in order) and every winner must be equal. Exit code 1 when one is not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def replayed(tree: Path, out: Path) -> dict[str, Any]:
    """Batches and winners of a run by the tree's own code."""
    paths = [tree / "src", tree / "tests", tree / "tests" / "search"]
    driver = tree / "tests" / "search" / "driver_replayed_run.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    subprocess.run([sys.executable, str(driver), str(out)], env=environment, cwd=out, check=True)
    lines = (out / "batches.jsonl").read_text().splitlines()
    best = json.loads((out / "best.json").read_text())
    return {
        "batches": [_choices(json.loads(line)) for line in lines],
        "winners": {task: (row["program"], row["latency"]) for task, row in best.items()},
    }


def _choices(batch: dict[str, Any]) -> list[Any]:
    rows = [(row["program"], row["origin"], row["score"]) for row in batch["proposed"]]
    return [batch["task"], *rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", nargs=2, type=Path)
    args = parser.parse_args()
    found = []
    for tree in args.trees:
        with tempfile.TemporaryDirectory() as folder:
            found.append(replayed(tree.resolve(), Path(folder)))
    first, second = found
    trials = sum(len(batch) - 1 for batch in first["batches"])
    for number, (one, other) in enumerate(zip(first["batches"], second["batches"], strict=False)):
        if one != other:
            print(f"batch {number} differs: {one[:3]} and {other[:3]}")
            return 1
    same = first == second
    verdict = "the same" if same else "not the same"
    print(
        f"{trials} programs in {len(first['batches'])} batches and "
        f"{len(first['winners'])} winners: {verdict}"
    )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
