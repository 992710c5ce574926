"""Sentences that nobody measured: legal programs of tasks, scored by a trained model.

Half of a task's programs are drawn at random, half are what search finds best under the model: a
generator that learns from them has the search's answers without searching (distilled search).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensorese import interrupts
from tensorese.collect.tasklist import ListedTask
from tensorese.errors import TensoreseError
from tensorese.models.base import Model, load_model
from tensorese.models.catalog import choose
from tensorese.records.nouns import Platform
from tensorese.records.programs import UnmeasuredProgram
from tensorese.records.store import Store
from tensorese.search.contracts import Proposal, Ranker, TaskState
from tensorese.search.proposers.evolution import Evolution, EvolutionConfig
from tensorese.search.proposers.pool import score
from tensorese.search.proposers.random_rows import random_proposals
from tensorese.search.proposers.shares import sketch_shares
from tensorese.search.rankers.guided import GuidedRanker
from tensorese.space.replay import SCHEDULE_ERRORS
from tensorese.space.space import task_space
from tensorese.space.tiles import SpaceError
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

_KEPT = 16  # tasks whose programs are written together


class CorpusError(TensoreseError):
    """A corpus that cannot be written as asked."""


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    random: int = 24
    """Programs of a task that are drawn, over all its sketches."""
    best: int = 24
    """Programs of a task that search finds best under the model."""
    population: int = 2048
    """Programs the search scores for them."""
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.random, self.best) < 0 or self.random + self.best < 1 or self.population < 1:
            raise CorpusError(
                "--random and --best must not be negative and not both be 0, and --population be "
                f"at least 1, but got {self.random}, {self.best}, {self.population}"
            )


def scorer(spec: str, platform: Platform) -> tuple[Model, str] | None:
    """What `--model` names, with the head to ask: `auto`, a folder, or `none`."""
    if spec == "none":
        return None
    if spec == "auto":
        choice = choose(platform)
        if choice is None:
            raise CorpusError(
                f"a corpus is scored by a trained model, but none is of {platform.name}'s kind; "
                "name one with --model DIR, or take --model none"
            )
        model, head = load_model(choice.folder), choice.head
    else:
        model = load_model(Path(spec))
        head = platform.name if platform.name in model.platforms else model.platforms[0]
    if model.needs.lowers:
        raise CorpusError(
            f"a corpus takes thousands of scores a task, but {spec} lowers every program it "
            "scores; name a model on hardware features"
        )
    return model, head


def write_corpus(
    store: Store,
    tasks: Sequence[ListedTask],
    target: Target,
    platform: Platform,
    *,
    model: Model | None = None,
    head: str = "",
    config: CorpusConfig | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[str]:
    """Adds the programs of every task the store lacks; returns why tasks were left out.

    Killed at any time it goes on with the tasks that are missing.
    """
    settings = config or CorpusConfig()
    known = _known(store, platform)
    missing = [task for task in tasks if task.workload.id not in known]
    ranker = GuidedRanker(model, head) if model is not None else None
    skipped: list[str] = []
    batch: list[UnmeasuredProgram] = []
    try:
        for index, task in enumerate(missing):
            interrupts.check()
            try:
                module = import_tvm(target.kind).ir.load_json(task.workload.module)
                space = task_space(module, target, seed=settings.seed)
            except (SpaceError, *SCHEDULE_ERRORS) as error:
                skipped.append(f"{task.name}: {str(error).strip().splitlines()[-1][:160]}")
            else:
                state = TaskState(task.workload, space, platform)
                # A list first: a task that is interrupted must not be taken for a whole one.
                batch += list(_programs(state, ranker, settings))
            if (index + 1) % _KEPT == 0:
                store.add_programs(batch)
                batch = []
            progress(index + 1, len(missing))
    finally:
        if batch:
            store.add_programs(batch)
    return skipped


def _known(store: Store, platform: Platform) -> set[str]:
    """Workloads whose programs are there. A program is in a store once, under one platform."""
    table = store.program_table()
    origins = {origin.rpartition("@")[2] for origin in table["origin"].to_pylist()}
    others = sorted(origins - {platform.name})
    if others:
        raise CorpusError(
            f"a corpus is of one platform, but {store.path} holds programs for "
            f"{others[0] or 'none'} and these are for {platform.name}; name another --out"
        )
    return set(table["workload_id"].to_pylist())


def _programs(
    state: TaskState, ranker: Ranker | None, config: CorpusConfig
) -> Iterator[UnmeasuredProgram]:
    rng = state.rng(config.seed)
    drawn = random_proposals(state, config.random, sketch_shares(state), rng)
    best: list[Proposal] = []
    if ranker is not None and config.best:
        search = EvolutionConfig(population=config.population, epsilon=0.0)
        best = Evolution(ranker, search, config.seed).evolve(state, config.best)
    places = {(one.sketch, one.row): one for one in (*drawn, *best)}
    for (sketch, row), one in places.items():
        value = one.score
        if ranker is not None and math.isnan(value):
            value = float(score(state, ranker, sketch, np.array([row], dtype=np.int64))[0])
        yield UnmeasuredProgram(
            program=state.space.program(sketch, row, state.workload),
            origin=f"{one.origin}@{state.platform.name}",
            score=value,
        )
