"""A language model proposes: it writes programs of each sketch, the likeliest are measured.

It writes several times as many as are wanted; a ranker, where there is one, orders them instead
of the model's own likelihood. What the space has that the model cannot write is drawn at random.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tensorese.arrays import Floats64, Ints
from tensorese.features.sentences import grammar_of
from tensorese.language.sentence import Grammar, Words
from tensorese.models.base import ModelError, load_model
from tensorese.models.catalog import choose
from tensorese.models.tlm import TLM, Sampling
from tensorese.records.nouns import Measurement, Platform
from tensorese.search.contracts import Proposal, Proposer, Ranker, TaskState
from tensorese.search.proposers.evolution import SearchError
from tensorese.search.proposers.pool import Scored, distinct, pick, score
from tensorese.search.proposers.random_rows import random_proposals
from tensorese.search.proposers.shares import sketch_shares
from tensorese.space.decisions import DecisionSpace
from tensorese.space.decoding import Decoder, SketchDecoder
from tensorese.space.slots import Tile

_MOST = 512  # programs of a sketch written at once


@dataclass(frozen=True, kw_only=True)
class WritingConfig:
    per_program: int = 8
    """Programs written for one that is wanted, over all sketches."""
    least: int = 64
    """Programs written of a task, however few are wanted."""
    apart: float = 1.5
    """Least distance between two proposals of a sketch, while there are others."""
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        if self.per_program < 1 or self.least < 1:
            raise SearchError(
                "per_program and least must be at least 1, but got "
                f"{self.per_program}, {self.least}"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Prompted:
    """A task's sketches that the model can write, each with its grammar and prompt."""

    sketches: list[int]
    grammars: list[Grammar]
    prompts: list[Words]
    priors: Floats64
    """Log-probability of each sketch."""


class TLMProposer(Proposer):
    """Without a `model` the one that knows the task's platform, or one of its kind, writes."""

    name = "tlm"

    def __init__(
        self,
        ranker: Ranker | None = None,
        seed: int = 0,
        *,
        model: TLM | None = None,
        config: WritingConfig | None = None,
    ) -> None:
        self.ranker, self.seed, self.model = ranker, seed, model
        self.config = config or WritingConfig()
        self._known: dict[Hashable, _Prompted | None] = {}

    def propose(self, states: Sequence[TaskState], n: int) -> list[list[Proposal]]:
        return [self._propose(state, n) for state in states]

    def update(self, measurements: Sequence[Measurement]) -> None:
        if self.ranker is not None:
            self.ranker.update(measurements)

    def _propose(self, state: TaskState, n: int) -> list[Proposal]:
        rng = state.rng(self.seed)
        scored = self.written(state, n, int(rng.integers(1 << 62))) if n > 0 else []
        scored = [self._ordered(state, group.new_to(state)) for group in scored]
        picked = pick(state, scored, n, self.origin, apart=self.config.apart)
        return picked + random_proposals(state, n - len(picked), sketch_shares(state), rng, picked)

    @property
    def origin(self) -> str:
        return f"{self.name}:{self.model.hash}" if self.model is not None else self.name

    def _ordered(self, state: TaskState, group: Scored) -> Scored:
        if self.ranker is None:
            return group
        scores = score(state, self.ranker, group.sketch, group.rows)
        return Scored(sketch=group.sketch, rows=group.rows, scores=scores)

    def written(self, state: TaskState, n: int, seed: int) -> list[Scored]:
        """Distinct legal rows of every sketch, with their log-probabilities, the sketch's own
        included; several times `n`."""
        task = self._prompted(state)
        if task is None:
            return []
        wanted = max(self.config.least, self.config.per_program * n)
        rows = min(_MOST, math.ceil(2 * wanted / len(task.sketches)))
        return [_legal_rows(state, group) for group in self.drawn(state, rows, seed)]

    def drawn(self, state: TaskState, n: int, seed: int) -> list[Scored]:
        """`n` rows of every sketch as they were written, doubles and dead ends (of probability 0)
        among them."""
        task = self._prompted(state)
        if task is None:
            return []
        parts = [
            SketchDecoder(state.computed(sketch), grammar, n)
            for sketch, grammar in zip(task.sketches, task.grammars, strict=True)
        ]
        logs = self._model(state).write(task.prompts, Decoder(parts), self.config.sampling, seed)
        return [
            Scored(sketch=sketch, rows=part.rows(), scores=mine + prior)
            for sketch, part, mine, prior in zip(
                task.sketches, parts, logs, task.priors, strict=True
            )
        ]

    def _prompted(self, state: TaskState) -> _Prompted | None:
        sketches = tuple(space.sketch.id for space in state.space.sketches)
        key = (state.workload.id, state.platform.name, sketches, frozenset(state.barren))
        if key not in self._known:
            self._known[key] = self._read(state)
        return self._known[key]

    def _read(self, state: TaskState) -> _Prompted | None:
        target = json.loads(state.platform.target)
        sketches, grammars = [], []
        for sketch, space in enumerate(state.space.sketches):
            if space.covered and sketch not in state.barren:
                sketches.append(sketch)
                row, atomic = _any_row(space), self._model(state).atomic
                grammars.append(grammar_of(state.workload, space.sketch, row, atomic))
        if not sketches:
            return None
        prompts = [grammar.prompt(target) for grammar in grammars]
        scores = self._model(state).sketch_scores(prompts)
        priors = scores - np.logaddexp.reduce(scores)
        return _Prompted(sketches=sketches, grammars=grammars, prompts=prompts, priors=priors)

    def _model(self, state: TaskState) -> TLM:
        if self.model is None:
            self.model = writer_for(state.platform)
        return self.model


def _any_row(space: DecisionSpace) -> Ints:
    """A row whose tiles have the sketch's extents; it need not be legal."""
    row = np.zeros(space.n_columns, dtype=np.int64)
    for slot in space.slots:
        if isinstance(slot, Tile):
            row[slot.column : slot.column + slot.width] = slot.table[0]
    return row


def _legal_rows(state: TaskState, group: Scored) -> Scored:
    finished = np.flatnonzero(np.isfinite(group.scores))
    rows, first = distinct(group.rows[finished])
    scores = group.scores[finished][first]
    legal = state.computed(group.sketch).legal(rows)
    return Scored(sketch=group.sketch, rows=rows[legal], scores=scores[legal])


def writer_for(platform: Platform, folder: str | Path = "") -> TLM:
    """The model of a folder, or the one that ships for this kind of platform."""
    if folder:
        model = load_model(folder)
    else:
        choice = choose(platform, kinds=(TLM.kind,))
        if choice is None:
            raise SearchError(
                f"--proposer tlm needs a model that writes programs of {platform.name}'s kind, "
                "but none is there; train one (`tensorese train tlm`) and name it: tlm:DIR"
            )
        model = load_model(choice.folder)
    if not isinstance(model, TLM):
        raise ModelError(
            f"a writer must be a model of kind tlm, but {folder} holds a model of kind "
            f"{model.kind}; train one with `tensorese train tlm`"
        )
    return model
