"""How the networks that ship should learn: recipes on folds of the training tasks, beside trees.

    python benchmarks/ship_sweep.py --out OUT [--store cpu] [--held 5] [--only PART] [--device cuda]

Two of five folds of a store's training tasks, or `--held` of them, are held out in turn; networks
over all platforms are trained on the rest and judged alone and as a share of the score beside
trees. Test rows are not read. Rows (top-1, top-5, mean of the top five, pairs; by platform) are
added to `OUT/ship_sweep_STORE.jsonl` as they come.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from common import ROOT, provenance
from ship_models import CENTRED, GROWN, SQUARED
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.metrics import TaskResult
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.models.trees import mean_of
from tensorese.records.store import Store
from tensorese.training.physics import (
    Run,
    SmallRecipe,
    SmallSet,
    only,
    small_scores,
    small_set,
    train_small,
)
from tensorese.training.trees import can_grow, grow_forest, grow_shared

Floats = npt.NDArray[np.float64]
FOLDS = 5
LEAST = 20
"""Programs of a task from which it is judged."""
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
PLAIN = SmallRecipe(width=128, rows=1536)
RECIPES = {
    "4 of 64, ranking": SmallRecipe(),
    "4 of 128, ranking": PLAIN,
    "4 of 128, squared": SmallRecipe(width=128, **{**SQUARED, "dropout": 0.1}),
    "4 of 128, squared, dropout 0.2": SmallRecipe(width=128, **SQUARED),
    "4 of 256, squared, dropout 0.2": SmallRecipe(width=256, **SQUARED),
    "4 of 128, ranking and octaves": replace(PLAIN, octaves=10.0),
    "4 of 128, squared and regret": SmallRecipe(width=128, **{**SQUARED, "regret": 1.0}),
    "4 of 128, squared, 3 blocks": SmallRecipe(width=128, blocks=3, **SQUARED),
    "4 of 128, squared and centred": SmallRecipe(
        width=128, **{**SQUARED, "octaves": 0.0, "centred": 30.0}
    ),
    "4 of 128, centred": SmallRecipe(width=128, **CENTRED),
    "4 of 64, centred": SmallRecipe(width=64, **CENTRED),
    "4 of 256, centred": SmallRecipe(width=256, **CENTRED),
    "4 of 128, centred and ranking": replace(PLAIN, centred=30.0, dropout=0.2),
}


def folds_of(programs: ProgramSet) -> npt.NDArray[np.int64]:
    """By task, dealt by operator."""
    order = sorted(
        range(len(programs.tasks)),
        key=lambda k: (programs.workloads[programs.tasks[k]].operator, programs.tasks[k]),
    )
    fold = np.zeros(len(order), dtype=np.int64)
    fold[order] = np.arange(len(order)) % FOLDS
    return fold


class Sweep:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.held = args, tuple(range(args.held))
        with Store.open(ROOT / "data" / args.store) as store:
            self.given: SmallSet = small_set(read_programs([store], split="train"))
        self.programs = self.given.programs
        self.fold = folds_of(self.programs)
        self.several = len(self.programs.platforms) > 1

    def sides(self, held: int) -> tuple[tuple[int, ...], npt.NDArray[np.bool_]]:
        """Tasks to learn from, and the programs that are judged."""
        return tuple(np.flatnonzero(self.fold != held)), self.fold[self.programs.task] == held

    def networks(self, recipe: SmallRecipe) -> Floats:
        recipe = replace(recipe, together=30.0) if self.several else recipe
        runs = [Run(programs=self.programs, tasks=self.sides(k)[0], seed=k) for k in self.held]
        found = np.zeros(self.programs.latency.shape)
        models = train_small(self.given, runs, recipe, self.args.device)
        for held, model in zip(self.held, models, strict=True):
            judged = self.sides(held)[1]
            for head, platform in enumerate(self.programs.platforms):
                found[judged, head] = small_scores(model, self.given, platform)[judged]
        return found

    def trees(self, name: str) -> Floats:
        """As they ship: a platform's own and those it shares with the others."""
        setting, rounds, scales = GROWN[name]
        setting = {**setting, "min_data_in_leaf": 20, "seed": 0}
        features, found = self.given.features, np.zeros(self.programs.latency.shape)
        for held in self.held:
            tasks, judged = self.sides(held)
            grown = {}
            if self.several:
                grown = grow_shared(features, self.programs, tasks, rounds, setting, scales)
            for head, platform in enumerate(self.programs.platforms):
                mine = only(self.programs, platform)
                forest = grow_forest(features, mine, tasks, rounds, setting, scales)
                forest = mean_of([forest, grown[platform]]) if grown else forest
                found[judged, head] = forest.predict(features[judged])
        share = np.clip(found, 2.0**-6, 0.98)
        return np.asarray(np.log(share / (1 - share)))

    def row(self, name: str, scores: Floats) -> None:
        tasks = np.flatnonzero(np.isin(self.fold, self.held)).tolist()
        row = {
            platform: _figures(judge_scores(self.programs, platform, scores[:, head], tasks, LEAST))
            for head, platform in enumerate(self.programs.platforms)
        }
        means = np.mean(list(row.values()), axis=0)
        print(f"{name:44s}" + " ".join(f"{mean:.4f}" for mean in means), flush=True)
        with (self.args.out / f"{self.args.store}.jsonl").open("a") as file:
            file.write(json.dumps({"name": name, **row}) + "\n")


def _figures(results: list[TaskResult]) -> list[float]:
    rows = [[r.ratio(1), r.ratio(5), r.steady, r.pairwise] for r in results]
    return [round(float(x), 5) for x in np.mean(rows, axis=0)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--store", default="cpu", choices=("cpu", "h200"))
    parser.add_argument("--held", type=int, default=2, help="Folds of the five.")
    parser.add_argument("--only", default="", help="Recipes with this in their name.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    sweep = Sweep(args)
    about = {"about": provenance(), "columns": ["top1", "top5", "mean of top 5", "pairwise"]}
    with (args.out / f"{args.store}.jsonl").open("a") as file:
        file.write(json.dumps(about) + "\n")
    trees = {name: sweep.trees(name) for name in GROWN} if can_grow() else {}
    for name, alone in trees.items():
        sweep.row(name, alone)
    for name, recipe in RECIPES.items():
        if args.only not in name:
            continue
        said = sweep.networks(recipe)
        sweep.row(name, said)
        for beside, scores in trees.items():
            for share in SHARES:
                mixed = (1 - share) * scores + share * said
                sweep.row(f"{beside}, {share:g} of {name}", mixed)


if __name__ == "__main__":
    main()
