"""Publishes collected stores as a dataset of data/, with its card.

    python benchmarks/collect_dataset.py cpu STORE ... [--again NOISE ...] [--remarks FILE]

Stores are added to what data/NAME has already; the card, data/NAME.md, is written anew.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from common import ROOT
from tensorese.collect.card import card
from tensorese.collect.dataset import publish
from tensorese.collect.tasklist import read_tasks
from tensorese.evaluation.noise import compare_stores
from tensorese.records.store import Store

TITLES = {
    "cpu": "CPU programs: 1, 2 and 16 cores of Intel Emerald Rapids, 2 of AMD Zen 4 and Zen 3",
    "h200": "CUDA programs: NVIDIA H200, fp32",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(TITLES))
    parser.add_argument("stores", nargs="*", type=Path)
    parser.add_argument("--again", nargs="*", type=Path, default=[])
    parser.add_argument("--remarks", type=Path)
    args = parser.parse_args()
    out = ROOT / "data" / args.name
    print(f"{publish(args.stores, out):,} new measurements")
    noise: dict[str, Any] = {}
    with Store.open(out) as store:
        for path in args.again:
            with Store.open(path) as again:
                for platform in sorted(again.platforms() & store.platforms()):
                    noise[platform] = compare_stores(store, again, platform)
        remarks = args.remarks.read_text().strip() if args.remarks else ""
        tasks = read_tasks(ROOT / "data" / "tasks.parquet")
        (ROOT / "data" / f"{args.name}.md").write_text(
            card(TITLES[args.name], store, tasks, noise, remarks)
        )
        print(json.dumps(store.info(), indent=1))


if __name__ == "__main__":
    main()
