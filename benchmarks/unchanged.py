"""Shows that the shipped models score what they scored before: digests of every score, bit by bit.

    python benchmarks/unchanged.py [--write]

Features, scores and speeds of all rows of data/cpu and data/h200, by every head of every shipped
model, are hashed and compared with `results/unchanged/scores.json`, which holds those of commit
9716c03. BLAS differs between processors: compare on the kind of machine that the file names.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from typing import Any

import numpy as np

from common import RESULTS, ROOT, provenance
from tensorese.features.programs import read_programs
from tensorese.models.base import load_model
from tensorese.models.catalog import SHIPPED
from tensorese.records.store import Store

STORES = {"h200": ("h200",), "cpu": ()}
"""Shipped models that read a store's rows; of the last store all that are left."""
KEPT = RESULTS / "unchanged" / "scores.json"


def digests() -> dict[str, str]:
    hashes: dict[str, str] = {}
    names = sorted(path.name for path in SHIPPED.iterdir() if path.is_dir())
    for store_name, wanted in STORES.items():
        with Store.open(ROOT / "data" / store_name) as store:
            programs = read_programs([store], split="all")
        order = np.argsort(np.array(programs.ids))
        mine = wanted or tuple(n for n in names if (n,) not in STORES.values())
        inputs: Any = None
        for name in mine:
            model = load_model(SHIPPED / name)
            if inputs is None:
                inputs = model.read_all(programs)
                hashes[f"{store_name} features"] = _hash(inputs[order])
            for platform in model.platforms:
                scores = model.rank(inputs, platform)
                hashes[f"{name} {platform} score"] = _hash(scores[order])
                speeds = model.speeds(inputs, platform)
                hashes[f"{name} {platform} speed"] = _hash(speeds[order])
            print(f"{name}: {len(programs):,} programs", flush=True)
    return hashes


def _hash(values: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="Keep today's digests instead.")
    args = parser.parse_args()
    hashes = digests()
    if args.write:
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps({"about": provenance(), "digests": hashes}, indent=1) + "\n")
        return
    kept = json.loads(KEPT.read_text())["digests"]
    different = [name for name in kept if hashes.get(name) != kept[name]]
    print(f"{len(kept) - len(different)} of {len(kept)} digests are equal")
    for name in different:
        print(f"different: {name}")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
