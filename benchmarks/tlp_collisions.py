"""How often two different programs share a matrix, within a task and across tasks.

python benchmarks/tlp_collisions.py --data DIR --out FILE.json
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np

from tensorese.features.matrix import Encoder, MatrixSpec, paper_spec
from tensorese.features.programs import ProgramSet, encode_programs
from tlp_runs import PLATFORMS, programs_of


def codes(programs: ProgramSet, spec: MatrixSpec) -> Any:
    """One number per distinct matrix: two random projections, equal for equal matrices only."""
    encoded = encode_programs(programs, Encoder(spec))
    rng = np.random.default_rng(0)
    keys = rng.standard_normal((spec.length * spec.width, 2))
    parts = []
    for piece in np.array_split(np.arange(len(programs)), max(1, len(programs) // 4096)):
        parts.append(encoded.matrix(piece).reshape(len(piece), -1).astype(np.float64) @ keys)
    shown = np.round(np.concatenate(parts), 6)
    return np.unique(shown, axis=0, return_inverse=True)[1].reshape(-1)


def shares(programs: ProgramSet, spec: MatrixSpec) -> dict[str, float]:
    code = codes(programs, spec)
    pairs = np.unique(np.stack([code, programs.task]), axis=1)
    tasks_of = np.bincount(pairs[0])
    _, counts = np.unique(np.stack([programs.task, code]), axis=1, return_counts=True)
    return {
        "programs": len(programs),
        "within_task": float(1 - len(counts) / len(programs)),
        "across_tasks": float((tasks_of[code] > 1).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = []
    for platform in PLATFORMS:
        programs = programs_of(args.data, (platform,))
        full = programs.spec(implied=False, context=False)
        for name, spec in {
            "full": full,
            "paper crop": replace(paper_spec("gpu"), log=True),
            "half the rows": replace(full, length=full.length // 2),
            "8 numbers": replace(full, numbers=8),
            "full + shapes of the task": replace(full, context=True, length=full.length + 1),
        }.items():
            rows.append({"platform": platform, "matrix": name, **shares(programs, spec)})
            print(json.dumps(rows[-1]), flush=True)
    args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
