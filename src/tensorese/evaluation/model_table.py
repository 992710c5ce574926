"""All models on all platforms: test rows, one table, beside random order, noise and trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.evaluation.metrics import TaskResult, summary
from tensorese.evaluation.noise import latencies, measured_twice, tasks_of_programs, top_ratios
from tensorese.evaluation.ranked import features_of, judge_scores
from tensorese.evaluation.trees import TREES, fit_tree, installed_trees, score_tree
from tensorese.features.physics import Machine
from tensorese.features.programs import DataError, ProgramSet, read_programs
from tensorese.models.catalog import Kept, distance, target_of
from tensorese.models.physics_net import SmallModel
from tensorese.records.store import Store

Scores = npt.NDArray[np.float64]
KEYS = ("top1", "top5", "pairwise", "regret", "top1_low", "top1_high", "tasks")
VALIDATION = 6  # one training task in so many chooses the trees' setting


@dataclass(frozen=True, kw_only=True)
class Row:
    platform: str
    system: str
    note: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    """Top-1 by task, for paired comparisons."""
    pairs: dict[str, float] = field(default_factory=dict)
    """Pairs ordered right by task: the steadiest figure, since luck has least part in it."""
    twice: dict[int, dict[str, float]] = field(default_factory=dict)
    """Top-1 and top-5 by task among the programs that were measured twice: the oracle's."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "platform": self.platform,
            "system": self.system,
            "note": self.note,
            **self.figures,
            "ratios": self.ratios,
            "pairs": self.pairs,
            "twice": {f"top{k}": ratios for k, ratios in self.twice.items()},
        }


@dataclass(frozen=True, kw_only=True)
class Twice:
    """A platform's programs with a second time."""

    groups: dict[str, list[str]]
    label: dict[str, float]
    second: dict[str, float]

    def ratios(self, merit: Mapping[str, float]) -> dict[int, dict[str, float]]:
        """Of a ranking by merit, the lowest first: top-1 and top-5 by task."""
        return {k: top_ratios(self.groups, self.label, merit, k) for k in (1, 5)}


class Bench:
    """The test rows of one store, and second times of them."""

    def __init__(
        self, store: Store, platforms: Sequence[str] = (), again: Sequence[Store] = ()
    ) -> None:
        self.store, self.again = store, again
        known = tuple(name for name in sorted(store.platforms()) if not platforms)
        self.programs = read_programs([store], platforms=platforms or known, split="test")
        self.targets = _targets(store)
        self._features: dict[Machine, npt.NDArray[np.float32]] = {}
        self._twice: dict[str, Twice | None] = {}

    def features(self, machine: Machine) -> npt.NDArray[np.float32]:
        if machine not in self._features:
            self._features[machine] = features_of(self.programs, machine)
        return self._features[machine]

    def judge(self, platform: str, scores: Scores) -> list[TaskResult]:
        return judge_scores(self.programs, platform, scores, range(len(self.programs.tasks)))

    def row(self, platform: str, system: str, scores: Scores, note: str = "") -> Row | None:
        results = self.judge(platform, scores)
        if not results:
            return None
        figures, twice = summary(results), self.twice(platform)
        merit = dict(zip(self.programs.ids, (-scores).tolist(), strict=True))
        return Row(
            platform=platform,
            system=system,
            note=note,
            figures={key: float(figures[key]) for key in KEYS},
            ratios={result.task: round(result.ratio(1), 5) for result in results},
            pairs={result.task: round(result.pairwise, 5) for result in results},
            twice=twice.ratios(merit) if twice is not None else {},
        )

    def random(self, platform: str) -> Row | None:
        """Exact, not drawn."""
        results = self.judge(platform, np.zeros(len(self.programs)))
        if not results:
            return None
        figures = summary(results)
        kept = {"top1": figures["random_top1"], "top5": figures["random_top5"], "pairwise": 0.5}
        return Row(
            platform=platform,
            system="random order",
            figures={**{k: float(v) for k, v in kept.items()}, "tasks": float(len(results))},
        )

    def twice(self, platform: str) -> Twice | None:
        if platform not in self._twice:
            self._twice[platform] = self._measured_twice(platform)
        return self._twice[platform]

    def _measured_twice(self, platform: str) -> Twice | None:
        judged = set(self.programs.ids)
        found = latencies(self.store, platform)
        label = {key: latency for key, latency in found.items() if key in judged}
        second: dict[str, float] = {}
        for store in self.again:
            if platform in store.platforms():
                second |= latencies(store, platform)
        groups = measured_twice(label, second, tasks_of_programs(self.store, platform))
        return Twice(groups=groups, label=label, second=second) if groups else None

    def ceiling(self, platform: str) -> Row | None:
        """A ranking by a second measurement: what it misses is noise."""
        twice = self.twice(platform)
        if twice is None:
            return None
        each = np.mean([len(keys) for keys in twice.groups.values()])
        ratios = twice.ratios(twice.second)
        figures = {f"top{k}": float(np.mean(list(found.values()))) for k, found in ratios.items()}
        return Row(
            platform=platform,
            system="oracle",
            note=f"measured again; of the tasks that were, {each:.0f} programs each",
            figures={**figures, "tasks": float(len(twice.groups))},
            twice=ratios,
        )

    def model(self, platform: str, model: SmallModel, name: str) -> Row | None:
        """By the model's own head for the platform, else its nearest; None for another kind."""
        check_unseen(self.programs, model, name)
        wanted = target_of(platform, self.targets.get(platform, "{}"))
        near = {
            head: distance(wanted, target_of(head, model.card.targets.get(head, "{}")))
            for head in model.platforms
        }
        head = platform if platform in near else min(near, key=lambda key: near[key])
        if head != platform and near[head] == float("inf"):
            return None
        features = self.features(model.machine)
        scores = model.score(features, model.head_index(head)).astype(np.float64)
        note = "" if head == platform else f"head {head}"
        return self.row(platform, name, scores, note)

    def trees(self, platform: str) -> list[Row]:
        """Trained on the store's training rows, the setting chosen on training tasks."""
        train = read_programs([self.store], platforms=(platform,), split="train")
        machine = train.machine
        features, rows = features_of(train, machine), []
        validation = list(range(0, len(train.tasks), VALIDATION))
        rest = [k for k in range(len(train.tasks)) if k % VALIDATION]
        for kind in installed_trees():
            marks = []
            for setting in TREES[kind]:
                tree = fit_tree(kind, setting, features, train, rest)
                scores = score_tree(kind, tree, features)
                judged = judge_scores(train, platform, scores, validation)
                marks.append(float(np.mean([r.ratio(1) + r.ratio(5) for r in judged] or [0.0])))
            best = TREES[kind][int(np.argmax(marks))]
            tree = fit_tree(kind, best, features, train, range(len(train.tasks)))
            row = self.row(platform, kind, score_tree(kind, tree, self.features(machine)))
            rows += [row] if row is not None else []
        return rows


def check_unseen(programs: ProgramSet, model: SmallModel, name: str) -> None:
    seen = set(model.card.training_workloads) & set(programs.tasks)
    if seen:
        raise DataError(
            f"a model is judged on workloads it has not seen, but {name} was trained on "
            f"{len(seen)} of these {len(programs.tasks)}; give other records"
        )


def _targets(store: Store) -> dict[str, str]:
    table = store.table(["platform", "target"])
    return dict(zip(table["platform"].to_pylist(), table["target"].to_pylist(), strict=True))


def bench_models(
    stores: Sequence[Store],
    models: Sequence[Path],
    *,
    platforms: Sequence[str] = (),
    again: Sequence[Store] = (),
    trees: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    loaded = {path: SmallModel(path) for path in models}
    rows: list[Row | None] = []
    for store in stores:
        bench = Bench(store, platforms, again)
        for platform in bench.programs.platforms:
            say(f"{platform}: {len(bench.programs.tasks)} test tasks")
            rows.append(bench.random(platform))
            rows.append(bench.ceiling(platform))
            rows += [bench.model(platform, model, path.name) for path, model in loaded.items()]
            rows += bench.trees(platform) if trees else []
    return [row for row in rows if row is not None]


def folders_of(kept: Sequence[Kept]) -> list[Path]:
    return list(dict.fromkeys(one.folder for one in kept))
