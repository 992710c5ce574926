"""Trains the models that ship: TLP per platform, MTL-TLP over all CPU platforms; TVM is not needed.

    python benchmarks/ship_models.py --out OUT [--device cuda] [--quick]

Only rows that are not marked `test` are trained on. Recipes are compared on validation tasks, one
in six of the training tasks, and the best mean of top-1, top-5 and the mean of the top five wins;
so are, with LightGBM installed, sizes of the trees beside the networks and how many votes they
have. The models that ship are then trained on all training tasks. Test rows are judged once, at the
end, by `--seeds` models of the chosen recipe; no choice is made on them. OUT gets `models.tar`
(the folders for `src/tensorese/models/shipped`) and `ship_models.jsonl` (every run).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tensorese.evaluation.trees import (
    TREES,
    Scale,
    Setting,
    fit_tree,
    installed_trees,
    score_tree,
)
from tensorese.models.disk import Card
from tensorese.models.folder import save_model
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.tree_votes import TreeVotes

from common import ROOT, provenance
from ship_few import FEW_LABELS, Few
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.metrics import TaskResult, summary
from tensorese.evaluation.splits import check_disjoint
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.models.physics_net import SmallModel
from tensorese.models.tlp import TLP
from tensorese.models.trees import Forest, add_trees, mean_of
from tensorese.records.store import Store
from tensorese.training.physics import (
    Run,
    SmallRecipe,
    only,
    small_scores,
    small_set,
    train_small,
)
from tensorese.training.stacked import keep_labels
from tensorese.training.trees import BOTH, grow_forest, grow_shared

Scores = npt.NDArray[np.float64]
GROUPS = {"cpu": "mtl-cpu", "h200": "mtl-gpu"}
"""Stores of data/, and the name of the model over all of a store's platforms."""
VALIDATION = 6
# As the trees learn: speeds and their logarithms, no ranking; more programs in a step.
SQUARED: dict[str, Any] = {
    "loss": "mse",
    "octaves": 10.0,
    "regret": 0.0,
    "dropout": 0.2,
    "rows": 1536,
}
# Only how a task's programs compare, on a logarithmic scale.
CENTRED: dict[str, Any] = {**SQUARED, "loss": "none", "octaves": 0.0, "centred": 100.0}
RECIPES = {
    "4 networks of 64": SmallRecipe(),
    "4 of 128": SmallRecipe(width=128),
    "4, twice the steps": SmallRecipe(steps=4800),
    "4, dropout 0.3": SmallRecipe(dropout=0.3),
    "4, noise 0.3": SmallRecipe(noise=0.3),
    "4, no noise": SmallRecipe(noise=0.0),
    "4, 1 block": SmallRecipe(blocks=1),
    "4, small steps, long": SmallRecipe(lr=4e-4, steps=4800),
    "4, weight decay 0.1": SmallRecipe(weight_decay=0.1),
    "4, no regret": SmallRecipe(regret=0.0),
    "8 of 64": SmallRecipe(networks=8),
    "8, dropout 0.3, long": SmallRecipe(networks=8, dropout=0.3, steps=4800),
    "4 of 128, squared errors": SmallRecipe(width=128, **SQUARED),
    "4 of 256, squared errors": SmallRecipe(width=256, **SQUARED),
    "4 of 128, centred errors": SmallRecipe(width=128, **CENTRED),
}
# Shallow enough to be walked fast by numpy: settings, the number of trees of each scale, scales.
LARGE: Setting = {"num_leaves": 63, "max_depth": 8, "learning_rate": 0.08}
GROWN: dict[str, tuple[Setting, int, Sequence[Scale]]] = {
    "300 large trees of both": (LARGE, 300, BOTH),
    "300 large trees, centred": (LARGE, 300, ("share", "centred")),
}
VOTES = (4, 8, 16, 32)
TOGETHER = (0.0, 3.0, 10.0, 30.0)
"""How strongly the heads of the model over all platforms are pulled to their mean."""
QUICK = {"4 networks, few steps": SmallRecipe(steps=400)}


class Ship:
    def __init__(self, args: argparse.Namespace, name: str) -> None:
        self.args, self.name, self.began = args, name, time.monotonic()
        with Store.open(ROOT / args.data / name) as store, ExitStack() as stack:
            own = read_programs([store], split="train")
            others = [stack.enter_context(Store.open(p)) for p in args.beside if name == "h200"]
            self.programs = read_programs([store, *others], split="train") if others else own
            self.test = read_programs([store], split="test")
            self.targets = {k: v for one in [*others, store] for k, v in _targets(one).items()}
        self.own = own.platforms
        """Those that models are made for and judged on; others lend their labels."""
        check_disjoint(self.programs.tasks, self.test.tasks, self.programs.workloads)
        self.given, self.test_set = small_set(self.programs), small_set(self.test)
        self.rows: list[dict[str, Any]] = []
        self.forests: dict[tuple[str, tuple[str, ...], int, bool], dict[str, Forest]] = {}
        self.tried: dict[str, list[tuple[str, int, TLP]]] = {}
        """Recipe to its models of the training side: label, seed, model."""
        self.trees, self.votes = next(iter(GROWN)), 0
        self.together = args.together or 0.0
        self.lent = False
        """Whether a platform's networks are those of the model over all, with its head."""
        self.train, self.validation = sides(self.programs, own.tasks)
        self.all = tuple(range(len(self.programs.tasks)))

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.args.started:6.1f} s  {self.name}: {text}", flush=True)

    @property
    def scales(self) -> Sequence[Scale]:
        return GROWN[self.trees][2]

    def labels(self) -> list[tuple[str, ProgramSet]]:
        """By name: each platform alone, and all of them together."""
        found = [(name, only(self.programs, name)) for name in self.own]
        if len(self.programs.platforms) > 1:
            found.append((GROUPS[self.name], self.programs))
        wanted = self.args.labels.split(",") if self.args.labels else [name for name, _ in found]
        return [(name, labels) for name, labels in found if name in wanted]

    def judged(self, model: TLP | SmallModel) -> list[str]:
        return [name for name in model.platforms if name in self.own]

    def choose(self, recipes: dict[str, SmallRecipe]) -> str:
        seeds = range(1 if self.args.quick else 2)
        marks: dict[str, list[float]] = {}
        for name, recipe in recipes.items():
            names = [label for label, _ in self.labels() for _ in seeds]
            runs = [
                Run(programs=labels, tasks=self.train, seed=seed)
                for _, labels in self.labels()
                for seed in seeds
            ]
            models = train_small(self.given, runs, recipe, self.args.device)
            self.tried[name] = [
                (label, run.seed, model)
                for label, run, model in zip(names, runs, models, strict=True)
            ]
            for label, run, model in zip(names, runs, models, strict=True):
                for platform in self.judged(model):
                    marks.setdefault(name, []).append(
                        self.judge("validation", name, label, run.seed, model, platform)
                    )
            self.say(f"{name}: {np.mean(marks[name]):.4f} on validation tasks")
            if time.monotonic() - self.began > self.args.choose_secs:
                self.say("time for choosing is up")
                break
        return max(marks, key=lambda name: float(np.mean(marks[name])))

    def choose_together(self, recipe: SmallRecipe) -> None:
        """On validation tasks, with all labels and with a thousand of each platform in turn."""
        marks: dict[float, list[float]] = {}
        whole = [(label, labels) for label, labels in self.labels() if label == GROUPS[self.name]]
        few = [
            (platform, keep_labels(self.programs, platform, self.train, FEW_LABELS, seed=0))
            for platform in self.own
        ]
        for strength in TOGETHER if whole else ():
            runs = [Run(programs=labels, tasks=self.train) for _, labels in [*whole, *few]]
            pulled = replace(recipe, together=strength)
            models = train_small(self.given, runs, pulled, self.args.device)
            name = f"heads together {strength:g}"
            found = [
                self.judge("validation", name, whole[0][0], 0, models[0], platform)
                for platform in self.own
            ]
            found += [
                self.judge("validation", name, f"{FEW_LABELS} and others", 0, model, platform)
                for model, (platform, _) in zip(models[1:], few, strict=True)
            ]
            marks[strength] = found
            half = len(found) // 2
            shown = f"{np.mean(found[:half]):.4f}, {np.mean(found[half:]):.4f} with few labels"
            self.say(f"{name}: {shown}")
        if marks:
            self.together = max(marks, key=lambda strength: float(np.mean(marks[strength])))
            self.say(f"chosen: {self.together:g}")

    def choose_lenders(self, name: str, recipe: SmallRecipe) -> None:
        """Networks of a platform's own labels, or of all platforms' with its head?"""
        named = self.labels()
        if GROUPS[self.name] not in dict(named) or len(named) == 1:
            return
        runs = [Run(programs=labels, tasks=self.train) for _, labels in named]
        marks: dict[bool, list[float]] = {False: [], True: []}
        for (label, _), model in zip(named, self.train_all(runs, recipe), strict=True):
            for platform in self.judged(model):
                mark = self.judge("validation", name, label, 0, model, platform)
                marks[label == GROUPS[self.name]].append(mark)
        own, all_of = (float(np.mean(marks[several])) for several in (False, True))
        self.lent = all_of > own
        self.say(f"networks of own labels {own:.4f}, of all platforms' {all_of:.4f}")

    def recipe_of(self, labels: ProgramSet, recipe: SmallRecipe) -> SmallRecipe:
        several = len(labels.platforms) > 1
        return replace(recipe, together=self.together) if several else recipe

    def train_all(self, runs: Sequence[Run], recipe: SmallRecipe) -> list[TLP]:
        """Models of one platform, and of all with their heads together."""
        found: dict[int, TLP] = {}
        for several in (False, True):
            mine = [k for k, run in enumerate(runs) if (len(run.programs.platforms) > 1) == several]
            if mine:
                used = self.recipe_of(runs[mine[0]].programs, recipe)
                models = train_small(self.given, [runs[k] for k in mine], used, self.args.device)
                found.update(zip(mine, models, strict=True))
        return [found[k] for k in range(len(runs))]

    def choose_votes(self, chosen: str) -> None:
        """How large the trees beside the chosen networks are, and how much they count."""
        marks: dict[tuple[str, int], list[float]] = {}
        for label, seed, model in self.tried[chosen]:
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch) / "model"
                save_model(folder, model.cpu(), Card(command="", data_hash="", split=""))
                for trees in GROWN:
                    labels = dict(self.labels())[label]
                    forests = self._forests(trees, labels, seed, whole=False)
                    for votes in VOTES:
                        add_trees(folder, forests, votes)
                        found = self._judge_folder("validation", folder, label, seed, trees)
                        marks.setdefault((trees, votes), []).extend(found)
        (self.trees, self.votes) = max(marks, key=lambda pair: float(np.mean(marks[pair])))
        shown = ", ".join(f"{t} {v} votes {np.mean(m):.4f}" for (t, v), m in marks.items())
        self.say(f"{shown}; chosen {self.trees}, {self.votes} votes")

    def _judge_folder(
        self, part: str, folder: Path, label: str, seed: int, trees: str
    ) -> list[float]:
        """As the search asks a model: networks and trees together, by numpy."""
        model = SmallModel(folder)
        given = self.test_set if part == "test" else self.given
        judged = np.ones(len(given.programs), dtype=bool)
        if part == "validation":
            judged = np.isin(given.programs.task, self.validation)
        recipe, label = f"networks and {trees}, {model.votes} votes", f"{label} with trees"
        found = []
        for platform in self.judged(model):
            head = model.head_index(platform)
            scores = np.zeros(len(judged))
            scores[judged] = model.score(given.features[judged], head)
            found.append(self.row(part, recipe, label, seed, platform, scores))
        return found

    def judge(
        self, part: str, recipe: str, label: str, seed: int, model: TLP, platform: str
    ) -> float:
        given = self.test_set if part == "test" else self.given
        scores = small_scores(model, given, platform)
        return self.row(part, recipe, label, seed, platform, scores)

    def row(
        self, part: str, recipe: str, label: str, seed: int, platform: str, scores: Scores
    ) -> float:
        programs, tasks = self.programs, list(self.validation)
        if part == "test":
            programs, tasks = self.test, list(range(len(self.test.tasks)))
        results = judge_scores(programs, platform, scores, tasks)
        if not results:
            return 0.0
        row = {
            "part": part,
            "store": self.name,
            "recipe": recipe,
            "model": label,
            "platform": platform,
            "seed": seed,
            **summary(results),
            "steady": float(np.mean([r.steady for r in results])),
        }
        if part == "test":
            row["ratios"] = told(results)
        self.rows.append(row)
        return float(row["top1"] + row["top5"] + row["steady"]) / 3

    def final(self, chosen: str, recipe: SmallRecipe) -> None:
        seeds = range(self.args.seeds)
        named = [(label, labels, seed) for label, labels in self.labels() for seed in seeds]
        models = self.lent_heads(named, recipe) if self.lent else self.own_models(named, recipe)
        for (label, labels, seed), model in zip(named, models, strict=True):
            for platform in self.judged(model):
                self.judge("test", chosen, label, seed, model, platform)
            if self.votes:
                forests = self._forests(self.trees, labels, seed)
                model.trees = TreeVotes(forests, self.votes)
                both = f"networks and {self.trees}, {self.votes} votes"
                for platform in self.judged(model):
                    self.judge("test", both, f"{label} with trees", seed, model, platform)
            if seed == 0:
                folder = self.args.out / "models" / label
                self.save(folder, label, labels, model, chosen, recipe)
        self.say("trained on all training tasks, judged on test rows")

    def own_models(
        self, named: Sequence[tuple[str, ProgramSet, int]], recipe: SmallRecipe
    ) -> list[TLP]:
        runs = [Run(programs=labels, tasks=self.all, seed=seed) for _, labels, seed in named]
        return self.train_all(runs, recipe)

    def lent_heads(
        self, named: Sequence[tuple[str, ProgramSet, int]], recipe: SmallRecipe
    ) -> list[TLP]:
        """The model over all platforms, one a seed, and its trunk with each platform's head."""
        seeds = sorted({seed for _, _, seed in named})
        runs = [Run(programs=self.programs, tasks=self.all, seed=seed) for seed in seeds]
        trained = dict(zip(seeds, self.train_all(runs, recipe), strict=True))
        found = []
        for label, _, seed in named:
            model = trained[seed]
            assert isinstance(model, MTLTLP)
            found.append(model if label == GROUPS[self.name] else model.with_head(label))
        return found

    def _forests(
        self, trees: str, labels: ProgramSet, seed: int, *, whole: bool = True
    ) -> dict[str, Forest]:
        """Of all training tasks, or of the training side alone.

        Beside a platform's own trees stand as many that it shares with the store's others.
        """
        key = (trees, labels.platforms, seed, whole)
        if key not in self.forests:
            tasks = self.all if whole else self.train
            found = self.grown(trees, labels, tasks, seed)
            if labels.platforms != self.programs.platforms:
                shared = self._forests(trees, self.programs, seed, whole=whole)
                found = {name: mean_of([own, shared[name]]) for name, own in found.items()}
            self.forests[key] = found
        return self.forests[key]

    def grown(
        self, trees: str, labels: ProgramSet, tasks: Sequence[int], seed: int
    ) -> dict[str, Forest]:
        """Several platforms share theirs."""
        grown, rounds, scales = GROWN[trees]
        setting = {**grown, "min_data_in_leaf": 20, "seed": seed}
        features = self.given.features
        if len(labels.platforms) > 1:
            return grow_shared(features, labels, tasks, rounds, setting, scales)
        forest = grow_forest(features, labels, tasks, rounds, setting, scales)
        return {labels.platforms[0]: forest}

    def marks(self, label: str) -> dict[str, float]:
        """By platform: how the chosen networks and trees rank validation tasks."""
        recipe = f"networks and {self.trees}, {self.votes} votes"
        wanted = ("validation", recipe, f"{label} with trees")
        found: dict[str, list[float]] = {}
        for row in self.rows:
            if (row["part"], row["recipe"], row["model"]) == wanted:
                mark = (row["top1"] + row["top5"] + row["steady"]) / 3
                found.setdefault(row["platform"], []).append(mark)
        return {name: round(float(np.mean(several)), 4) for name, several in found.items()}

    def save(
        self,
        folder: Path,
        label: str,
        labels: ProgramSet,
        model: TLP,
        chosen: str,
        recipe: SmallRecipe,
    ) -> None:
        metrics: dict[str, Any] = {"recipe": chosen}
        for row in self.rows:
            if row["model"] == label and row["recipe"] == chosen and row["seed"] == 0:
                for key in ("top1", "top5", "random_top1", "pairwise", "tasks"):
                    metrics[f"{row['platform']} {row['part']} {key}"] = row[key]
            if (row["part"], row["model"], row["seed"]) == ("test", f"{label} with trees", 0):
                metrics["trees"] = row["recipe"]
                for key in ("top1", "top5", "pairwise"):
                    metrics[f"{row['platform']} test {key} with trees"] = row[key]
        marks = self.marks(label).items()
        metrics |= {f"{name} on validation tasks": mark for name, mark in marks}
        card = Card(
            command="python benchmarks/ship_models.py",
            data_hash=labels.digest,
            split="rows marked test never seen; validation tasks joined after the choice",
            training_workloads=self.programs.tasks,
            train=asdict(self.recipe_of(labels, recipe)),
            metrics=metrics,
            targets={name: self.targets[name] for name in model.platforms},
        )
        save_model(folder, model.cpu(), card, half=True)


def sides(programs: ProgramSet, own: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Training and validation tasks: the store's own, dealt by operator; others' only train."""
    order = sorted(
        range(len(programs.tasks)),
        key=lambda k: (programs.workloads[programs.tasks[k]].operator, programs.tasks[k]),
    )
    dealt = [k for k in order if programs.tasks[k] in set(own)]
    validation = dealt[VALIDATION // 2 :: VALIDATION]
    return tuple(k for k in order if k not in set(validation)), tuple(validation)


def _targets(store: Store) -> dict[str, str]:
    table = store.table(["platform", "target"])
    return dict(zip(table["platform"].to_pylist(), table["target"].to_pylist(), strict=True))


def trees(ship: Ship) -> None:
    """LightGBM and XGBoost on the same inputs, where installed: three settings each, chosen on
    the same validation tasks, then as many seeds as the models."""
    wanted = ship.args.labels.split(",") if ship.args.labels else ship.own
    for kind in installed_trees():
        for platform in [name for name in ship.own if name in wanted]:
            labels = only(ship.programs, platform)
            found = []
            for setting in TREES[kind]:
                tree = fit_tree(kind, setting, ship.given.features, labels, ship.train)
                scores = score_tree(kind, tree, ship.given.features)
                results = judge_scores(labels, platform, scores, ship.validation)
                found.append((_mark(results), setting))
            _, best = max(found, key=lambda pair: pair[0])
            for seed in range(ship.args.seeds):
                seeded = {**best, "seed": seed}
                tree = fit_tree(kind, seeded, ship.given.features, labels, ship.all)
                scores = score_tree(kind, tree, ship.test_set.features)
                tasks = list(range(len(ship.test.tasks)))
                results = judge_scores(ship.test, platform, scores, tasks)
                if results:
                    ship.rows.append(_tree_row(ship, kind, platform, seed, results))
        ship.say(f"{kind} judged")


def told(results: Sequence[TaskResult]) -> dict[str, list[float]]:
    """Top-1, top-5 and pairs ordered right, by task."""
    return {r.task: [round(x, 5) for x in (r.ratio(1), r.ratio(5), r.pairwise)] for r in results}


def _mark(results: Sequence[TaskResult]) -> float:
    steady = float(np.mean([r.steady for r in results])) if results else 0.0
    top = [float(np.mean([r.ratio(k) for r in results])) if results else 0.0 for k in (1, 5)]
    return (sum(top) + steady) / 3


def _tree_row(
    ship: Ship, kind: str, platform: str, seed: int, results: Sequence[TaskResult]
) -> dict[str, Any]:
    return {
        "part": "test",
        "store": ship.name,
        "recipe": "trees",
        "model": kind,
        "platform": platform,
        "seed": seed,
        **summary(results),
        "ratios": told(results),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--stores", default=",".join(GROUPS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--choose-secs", type=float, default=50.0, help="For each store.")
    parser.add_argument("--skip-few", action="store_true", help="No models of few labels.")
    parser.add_argument("--first-seed", type=int, default=0, help="Of the models of few labels.")
    parser.add_argument("--alone", action="store_true", help="Few labels without others as well.")
    parser.add_argument("--only-few", action="store_true", help="Nothing else, with --recipe.")
    parser.add_argument("--only-trees", action="store_true", help="LightGBM and XGBoost alone.")
    parser.add_argument("--recipe", default="", help="This one, without choosing.")
    parser.add_argument("--together", type=float, help="Pull of the heads; chosen if not given.")
    parser.add_argument("--loose", action="store_true", help="Keep the folders beside the tar.")
    parser.add_argument("--beside", nargs="*", type=Path, default=[], help="Stores for mtl-gpu.")
    parser.add_argument("--labels", default="", help="Only these models of a store, by name.")
    parser.add_argument(
        "--settled", default="", help='Trees and votes, with --recipe: "150 trees,8"'
    )
    parser.add_argument("--quick", action="store_true", help="One short recipe, to try things.")
    parser.add_argument("--trees", action="store_true", help="LightGBM and XGBoost as well.")
    args = parser.parse_args()
    if (args.only_few or args.settled) and args.recipe not in RECIPES:
        parser.error(f"--only-few and --settled need --recipe, one of {', '.join(RECIPES)}")
    args.started = time.monotonic()
    recipes = QUICK if args.quick else RECIPES
    recipes = {args.recipe: recipes[args.recipe]} if args.recipe else recipes
    rows: list[dict[str, Any]] = []
    for name in args.stores.split(","):
        ship = Ship(args, name)
        ship.say(f"{len(ship.programs):,} programs, {ship.given.features.shape[1]} features")
        if args.settled:
            ship.trees, votes = args.settled.rsplit(",", 1)
            ship.votes = int(votes)
        if args.only_few or args.only_trees:
            few = Few(ship, args.alone)
            trees(ship) if args.only_trees else few.run(args.recipe, recipes[args.recipe])
            rows += ship.rows
            _write(args.out, rows)
            continue
        chosen = args.recipe
        if not args.settled:
            chosen = ship.choose(recipes)
            ship.say(f"chosen: {chosen}")
            if "lightgbm" in installed_trees():
                ship.choose_votes(chosen)
            if args.together is None:
                ship.choose_together(recipes[chosen])
        ship.choose_lenders(chosen, recipes[chosen])
        ship.final(chosen, recipes[chosen])
        _write(args.out, [*rows, *ship.rows])
        if not args.skip_few:
            Few(ship, args.alone).run(chosen, recipes[chosen])
        if args.trees:
            trees(ship)
        rows += ship.rows
        _write(args.out, rows)
    if (args.out / "models").exists() and not args.loose:
        shutil.rmtree(args.out / "models")  # they are in the tar


def _write(out: Path, rows: Sequence[dict[str, Any]]) -> None:
    said = [word for word in sys.argv[1:] if word != str(out)]  # no path of this machine
    about = {**provenance(), "argv": [word for word in said if word != "--out"]}
    lines = [json.dumps({"about": about}), *(json.dumps(row) for row in rows)]
    out.mkdir(parents=True, exist_ok=True)
    (out / "rows.jsonl").write_text("\n".join(lines) + "\n")
    if not (out / "models").exists():
        return
    with tarfile.open(out / "models.tar", "w") as tar:
        tar.add(out / "models", arcname="models")


if __name__ == "__main__":
    main()
