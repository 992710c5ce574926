"""A thousand labels of one CPU and all of the others': trees on training tasks that are held out.

    python benchmarks/few_labels.py [--draws 2] [--platforms A,B]

One in six of data/cpu's training tasks is held out. Shared trees of what there is, the same with
the others' labels translated (`training/translate.py`), the platform's own trees beside those, and
shared trees of all labels. Rows are kept by platform and draw; what is there is not run again.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt

from common import ROOT, add_rows, provenance, read_rows, result_file
from ship_few import FEW_LABELS
from ship_models import LARGE, sides
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.metrics import mean_top_k
from tensorese.features.programs import read_programs
from tensorese.records.store import Store
from tensorese.training.physics import SmallSet, only, small_set
from tensorese.training.stacked import keep_labels
from tensorese.training.transferred_labels import translated
from tensorese.training.trees import grow_forest, grow_shared

ROWS = result_file("few_labels", ".jsonl")
TREES = 300
SETTING = {**LARGE, "min_data_in_leaf": 20}
SCALES = ("share", "centred")


class Judge:
    """Held-out tasks of one platform."""

    def __init__(self, given: SmallSet, platform: str) -> None:
        self.given, self.platform = given, platform
        self.train, self.held = sides(given.programs, given.programs.tasks)

    def row(self, system: str, seed: int, scores: npt.NDArray[np.float64]) -> dict[str, Any]:
        found = judge_scores(self.given.programs, self.platform, scores, list(self.held))
        row = {
            "platform": self.platform,
            "system": system,
            "seed": seed,
            **{f"top{k}": round(mean_top_k(found, k), 4) for k in (1, 5)},
            "pairwise": round(float(np.mean([r.pairwise for r in found])), 4),
            "tasks": len(found),
        }
        print(row, flush=True)
        return row

    def rows(self, seed: int) -> list[dict[str, Any]]:
        programs, x = self.given.programs, self.given.features
        setting = {**SETTING, "seed": seed}
        few = keep_labels(programs, self.platform, self.train, FEW_LABELS, seed=seed)
        told = translated(x, few, self.platform, self.train, seed=seed)
        shared = {
            name: grow_shared(x, labels, self.train, TREES, setting, SCALES)[self.platform]
            for name, labels in (("few", few), ("translated", told), ("all", programs))
        }
        said = {name: forest.predict(x) for name, forest in shared.items()}
        mine = only(told, self.platform)
        own = grow_forest(x, mine, self.train, TREES, setting, SCALES).predict(x)
        return [
            self.row("shared", seed, said["few"]),
            self.row("shared, translated", seed, said["translated"]),
            self.row("shared and own, translated", seed, said["translated"] + own),
            self.row("shared, all labels", seed, said["all"]),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--platforms", default="", help="Some of them, by name.")
    args = parser.parse_args()
    with Store.open(ROOT / "data" / "cpu") as store:
        given = small_set(read_programs([store], split="train"))
    done = {(row["platform"], row["seed"]) for row in read_rows(ROWS)}
    for platform in args.platforms.split(",") if args.platforms else given.programs.platforms:
        for seed in range(args.draws):
            if (platform, seed) in done:
                continue
            rows = [{**row, **provenance()} for row in Judge(given, platform).rows(seed)]
            add_rows(ROWS, rows)


if __name__ == "__main__":
    main()
