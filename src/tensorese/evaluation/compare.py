"""All models on all platforms: test rows, one table, beside random order, noise and baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tensorese.evaluation.costs import costs_of
from tensorese.evaluation.inputs import Inputs
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.lowered_programs import NOBODY, Listener
from tensorese.evaluation.metrics import TaskResult, summary
from tensorese.evaluation.networks import network_use, pool, pooled_ratio
from tensorese.evaluation.noise import latencies, measured_twice, tasks_of_programs, top_ratios
from tensorese.evaluation.rows import KEYS, ComparedRow, RowFile
from tensorese.features.programs import DataError, ProgramSet, read_programs
from tensorese.models.base import Model, load_model
from tensorese.models.catalog import distance, target_of
from tensorese.records.store import Store

Scores: TypeAlias = npt.NDArray[np.float64]
Baselines: TypeAlias = Callable[[ProgramSet, ProgramSet, str], Sequence[tuple[str, Scores]]]
"""Training programs, test programs, platform: names and scores of the test programs."""
RANDOM, ORACLE = "random order", "oracle"


@dataclass(frozen=True, kw_only=True)
class Twice:
    """A platform's programs with a second time."""

    groups: dict[str, list[str]]
    label: dict[str, float]
    second: dict[str, float]

    def ratios(self, merit: Mapping[str, float]) -> dict[int, dict[str, float]]:
        """Of a ranking by merit, the lowest first: top-1 and top-5 by task."""
        return {k: top_ratios(self.groups, self.label, merit, k) for k in (1, 5)}

    @property
    def best(self) -> dict[str, float]:
        """Best latency by task."""
        return {task: min(self.label[key] for key in keys) for task, keys in self.groups.items()}


class Comparison:
    """The test rows of one store, and second times of them."""

    def __init__(
        self,
        store: Store,
        platforms: Sequence[str] = (),
        again: Sequence[Store] = (),
        networks: Path | None = None,
        listener: Listener = NOBODY,
    ) -> None:
        self.store, self.again = store, again
        known = tuple(name for name in sorted(store.platforms()) if not platforms)
        self.programs = read_programs([store], platforms=platforms or known, split="test")
        self.use = network_use(store, self.programs.tasks, networks)
        self.targets = store.targets()
        self.inputs = Inputs(self.programs, [store], listener)
        self._twice: dict[str, Twice | None] = {}

    def judge(self, platform: str, scores: Scores) -> list[TaskResult]:
        return judge_scores(self.programs, platform, scores, range(len(self.programs.tasks)))

    def row(self, platform: str, system: str, scores: Scores, note: str = "") -> ComparedRow | None:
        results = self.judge(platform, scores)
        if not results:
            return None
        figures, twice = summary(results), self.twice(platform)
        merit = dict(zip(self.programs.ids, (-scores).tolist(), strict=True))
        return ComparedRow(
            platform=platform,
            system=system,
            note=note,
            data=self.programs.digest,
            figures={key: float(figures[key]) for key in KEYS},
            ratios={result.task: round(result.ratio(1), 5) for result in results},
            pairs={result.task: round(result.pairwise, 5) for result in results},
            twice=twice.ratios(merit) if twice is not None else {},
            pooled=pool(results, self.use).to_dict(self.programs.workloads, self.use),
        )

    def random(self, platform: str) -> ComparedRow | None:
        """Exact, not drawn."""
        results = self.judge(platform, np.zeros(len(self.programs)))
        if not results:
            return None
        figures = summary(results)
        scores = {"top1": figures["random_top1"], "top5": figures["random_top5"], "pairwise": 0.5}
        expected = pool(results, self.use).random
        return ComparedRow(
            platform=platform,
            system=RANDOM,
            figures={**{k: float(v) for k, v in scores.items()}, "tasks": float(len(results))},
            pooled={f"top{k}_pooled": value for k, value in expected.items()},
        )

    def twice(self, platform: str) -> Twice | None:
        if platform not in self._twice:
            self._twice[platform] = self._measured_twice(platform)
        return self._twice[platform]

    def _measured_twice(self, platform: str) -> Twice | None:
        judged = set(self.programs.ids)
        first = latencies(self.store, platform)
        label = {key: latency for key, latency in first.items() if key in judged}
        second: dict[str, float] = {}
        for store in self.again:
            if platform in store.platforms():
                second |= latencies(store, platform)
        groups = measured_twice(label, second, tasks_of_programs(self.store, platform))
        return Twice(groups=groups, label=label, second=second) if groups else None

    def oracle(self, platform: str) -> ComparedRow | None:
        """A ranking by a second measurement: what it misses is noise."""
        twice = self.twice(platform)
        if twice is None:
            return None
        each = np.mean([len(keys) for keys in twice.groups.values()])
        by_k = twice.ratios(twice.second)
        figures = {f"top{k}": float(np.mean(list(ratios.values()))) for k, ratios in by_k.items()}
        return ComparedRow(
            platform=platform,
            system=ORACLE,
            note=f"measured again; of the tasks that were, {each:.0f} programs each",
            figures={**figures, "tasks": float(len(twice.groups))},
            twice=by_k,
            pooled={
                f"top{k}_pooled": pooled_ratio(twice.best, ratios, self.use)
                for k, ratios in by_k.items()
            },
        )

    def model(self, platform: str, model: Model, name: str) -> ComparedRow | None:
        """By the model's own head for the platform, else its nearest; None for another kind."""
        wanted = target_of(platform, self.targets.get(platform, "{}"))
        near = {
            head: distance(wanted, target_of(head, model.card.targets.get(head, "{}")))
            for head in model.platforms
        }
        head = platform if platform in near else min(near, key=lambda key: near[key])
        if head != platform and near[head] == math.inf:
            return None
        note = "" if head == platform else f"head {head}"
        row = self.row(platform, name, self.inputs.scores(model, head), note)
        return None if row is None else replace(row, weights=model.hash)

    def with_costs(self, row: ComparedRow, model: Model, folder: Path) -> ComparedRow:
        head = row.note.removeprefix("head ") or row.platform
        inputs = self.inputs.of(model)
        costs = costs_of(model, folder, self.programs, self.store, head, inputs)
        return replace(row, costs=costs.to_dict())

    def baselines(self, platform: str, baselines: Baselines) -> list[ComparedRow]:
        """Trained on the store's training rows."""
        train = read_programs([self.store], platforms=(platform,), split="train")
        rows = [
            self.row(platform, name, scores)
            for name, scores in baselines(train, self.programs, platform)
        ]
        return [row for row in rows if row is not None]


def check_unseen(programs: ProgramSet, model: Model, name: str) -> None:
    seen = set(model.card.training_workloads) & set(programs.tasks)
    if seen:
        raise DataError(
            f"a model is judged on workloads it has not seen, but {name} was trained on "
            f"{len(seen)} of these {len(programs.tasks)}; give other records"
        )


def compare(
    stores: Sequence[Store],
    models: Sequence[Path],
    *,
    platforms: Sequence[str] = (),
    again: Sequence[Store] = (),
    networks: Path | None = None,
    baselines: Baselines | None = None,
    kept: Path | None = None,
    costs: bool = False,
    listener: Listener = NOBODY,
) -> list[ComparedRow]:
    """Stores that hold none of the platforms are passed over; a model's row that `kept` has of
    the same weights and records is not made again."""
    file = RowFile(kept)
    loaded = [(path.name, load_model(path)) for path in models]
    rows: list[ComparedRow | None] = []
    for store in stores:
        mine = [name for name in platforms if name in store.platforms()]
        if platforms and not mine:
            continue
        comparison = Comparison(store, mine, again, networks, listener)
        for name, model in loaded:
            check_unseen(comparison.programs, model, name)
        for platform in comparison.programs.platforms:
            listener.say(f"{platform}: {len(comparison.programs.tasks)} test tasks")
            beside = (comparison.random(platform), comparison.oracle(platform))
            rows += [file.keep(row) for row in beside if row is not None]
            for path, (name, model) in zip(models, loaded, strict=True):
                row = file.known(platform, name, model.hash, comparison.programs.digest)
                if row is None or (costs and not row.costs):
                    row = comparison.model(platform, model, name)
                    if row is not None and costs:
                        row = comparison.with_costs(row, model, path)
                    rows.append(row if row is None else file.keep(row))
                else:
                    rows.append(row)
            if baselines is not None:
                rows += comparison.baselines(platform, baselines)
    return [row for row in rows if row is not None]
