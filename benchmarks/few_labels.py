"""What a thousand labels of one CPU are worth, alone and beside all labels of the others.

    python benchmarks/few_labels.py [--seeds 3] [--platforms A,B] [--quick]

Networks and trees as `tensorese train ensemble --preset ship` makes them, from three sets of
data/cpu's training rows: 1,000 labels of the platform alone; the same with the others' labels
transferred (`training/transferred_labels.py`); all labels. Judged on test rows. Rows are kept by
platform, system and seed; what is there is not run again.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from common import ROOT, add_rows, provenance, read_rows, result_file
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.metrics import mean_top_k
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.models.base import Model
from tensorese.models.ensemble import Ensemble, Member
from tensorese.models.trees import Trees, mean_of
from tensorese.records.store import Store
from tensorese.training.labels import only
from tensorese.training.physics import FitJob, PhysicsSet, physics_set, train_physics
from tensorese.training.recipes.ensemble import SCALES, EnsembleRecipe
from tensorese.training.stacked import keep_labels
from tensorese.training.transferred_labels import transferred
from tensorese.training.trees import grow_forest, grow_shared

ROWS = result_file("few_labels", ".jsonl")
FEW = 1000
ALONE, BESIDE, ALL = f"{FEW} alone", f"{FEW} and others, transferred", "all labels"


def labels_of(system: str, data: PhysicsSet, platform: str, seed: int) -> ProgramSet:
    programs, tasks = data.programs, range(len(data.programs.tasks))
    if system == ALL:
        return programs
    few = keep_labels(programs, platform, tasks, FEW, seed=seed)
    if system == ALONE:
        return only(few, platform)
    return transferred(data.features, few, platform, tasks, seed=seed)


def train(
    data: PhysicsSet, labels: ProgramSet, platform: str, recipe: EnsembleRecipe, nth_task: int = 1
) -> Model:
    """A trunk of all platforms' labels with one head; trees of its own and shared ones."""
    tasks = tuple(range(0, len(labels.tasks), nth_task))
    job = FitJob(programs=labels, tasks=tasks, seed=recipe.seed)
    networks = train_physics(data, [job], recipe.fit)[0].with_head(platform)
    rounds, setting = recipe.grow.trees, recipe.grow.setting(recipe.seed)
    x, mine = data.features, only(labels, platform)
    forests = [grow_forest(x, mine, tasks, rounds, setting, SCALES)]
    if len(labels.platforms) > 1:
        forests.append(grow_shared(x, labels, tasks, rounds, setting, SCALES)[platform])
    trees = Trees(networks.needs.name, {platform: mean_of(forests)})
    return Ensemble([Member(model=networks), Member(model=trees, votes=recipe.grow.votes)])


def figures(model: Model, test: ProgramSet, platform: str) -> dict[str, float]:
    scores = model.rank(model.read_all(test), platform).astype(np.float64)
    results = judge_scores(test, platform, scores, range(len(test.tasks)))
    return {
        **{f"top{k}": round(mean_top_k(results, k), 4) for k in (1, 5)},
        "pairwise": round(float(np.mean([r.pairwise for r in results])), 4),
        "tasks": len(results),
    }


def run(args: argparse.Namespace, data: PhysicsSet, test: ProgramSet) -> None:
    kept = [] if args.quick else read_rows(ROWS)
    done = {(row["platform"], row["seed"], row["system"]) for row in kept}
    platforms = args.platforms.split(",") if args.platforms else test.platforms
    for key in product(platforms, range(args.seeds), (ALONE, BESIDE, ALL)):
        if key in done:
            continue
        platform, seed, system = key
        recipe = EnsembleRecipe(seed=seed)
        if args.quick:
            fit, grow = replace(recipe.fit, steps=1), replace(recipe.grow, trees=10)
            recipe = replace(recipe, fit=fit, grow=grow)
        labels = labels_of(system, data, platform, seed)
        model = train(data, labels, platform, recipe, 10 if args.quick else 1)
        row: dict[str, Any] = {"platform": platform, "system": system, "seed": seed}
        row |= figures(model, test, platform)
        print(row, flush=True)
        if not args.quick:
            add_rows(ROWS, [{**row, **provenance()}])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--platforms", default="", help="Some of them, by name.")
    parser.add_argument("--quick", action="store_true", help="Few tasks, steps and trees; no file.")
    args = parser.parse_args()
    with Store.open(ROOT / "data" / "cpu") as store:
        data = physics_set(read_programs([store], split="train"))
        test = read_programs([store], split="test")
    run(args, data, test)


if __name__ == "__main__":
    main()
