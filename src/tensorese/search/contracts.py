"""The two plug-ins of a search and what they are shown: `Ranker`, `Proposer`, `TaskState`."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tensorese.features.base import FeatureSet
from tensorese.language.metaschedule import unnumbered
from tensorese.records.nouns import Measurement, Platform, Program, Sketch, Status, Workload
from tensorese.space.decisions import DecisionSpace
from tensorese.space.space import TaskSpace

DecisionRow = tuple[int, ...]


class Ranker(Protocol):
    """Which programs are likely fast. Scores compare within a task only; higher is faster."""

    name: str
    """Goes into the origin of what it picked: `online`, `guided:HASH`."""
    needs: FeatureSet
    """What it sees of a program; one that lowers it is dear, see `rankers.staged`."""

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        """`[n, d]` decisions of one sketch to `[n]` scores."""
        ...

    def update(self, measurements: Sequence[Measurement]) -> None:
        """Learns from new measurements of any task; a frozen model ignores them."""
        ...


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A row to measure, and who thought of it."""

    sketch: int
    row: DecisionRow
    origin: str
    score: float = math.nan


def _key(sketch: Sketch) -> tuple[Any, ...]:
    return sketch.dialect, unnumbered(sketch.body), sketch.slots


class TaskState:
    """What is known about one task: its space and every trial, those in flight included."""

    batch = 0
    """Number of the batch that is proposed now."""

    def __init__(self, workload: Workload, space: TaskSpace, platform: Platform) -> None:
        self.workload = workload
        self.space = space
        self.platform = platform
        self.measurements: list[Measurement] = []
        self.seen: set[tuple[int, DecisionRow]] = set()
        """Rows measured or promised: a proposer never returns one of them."""
        self.barren: set[int] = set()
        """Sketches without a legal row: finding that out takes seconds, once."""
        self.replayed: set[int] = set()
        """Sketches that are drawn by replay; each is logged once."""
        self._computed: dict[int, DecisionSpace] = {}
        self._sketch_of = {_key(s.sketch): i for i, s in enumerate(space.sketches)}

    def rng(self, seed: int) -> np.random.Generator:
        """Random numbers of the batch that is proposed now.

        They depend on the seed, the task and the batch, never on what was drawn before: a resumed
        run proposes what an uninterrupted one would have.
        """
        digest = hashlib.sha256(f"{seed}/{self.workload.id}/{self.batch}".encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "little"))

    def promise(self, proposals: Iterable[Proposal]) -> None:
        """Marks rows as about to be measured."""
        self.seen.update((p.sketch, p.row) for p in proposals)

    def add(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)
        place = self.place(measurement.program)
        if place is not None:
            self.seen.add(place)

    def computed(self, sketch: int) -> DecisionSpace:
        """The sketch's space as far as arithmetic decides: its rows may be ranked before TVM is
        asked about the few that are wanted."""
        if sketch not in self._computed:
            space = self.space.sketches[sketch]
            arithmetic = tuple(limit for limit in space.limits if not limit.replays)
            asks = len(arithmetic) < len(space.limits)
            self._computed[sketch] = replace(space, limits=arithmetic) if asks else space
        return self._computed[sketch]

    def place(self, program: Program) -> tuple[int, DecisionRow] | None:
        """Where a program lies in the space; None when its sketch is not one of the task's."""
        index = self.sketch_like(program.sketch)
        return None if index is None else (index, program.decisions)

    def sketch_like(self, sketch: Sketch) -> int | None:
        """Which of the task's sketches it is, here or where another network has this task."""
        return self._sketch_of.get(_key(sketch))

    @property
    def best(self) -> Measurement | None:
        valid = [m for m in self.measurements if m.status is Status.OK]
        return min(valid, key=lambda m: m.latency, default=None)

    @property
    def best_latency(self) -> float:
        best = self.best
        return math.inf if best is None else best.latency


class Proposer(ABC):
    """Says what to measure next. What it draws comes from `TaskState.rng` alone."""

    name: str
    """Its name in the registry; the run folder keeps it, and origins begin with it."""

    @abstractmethod
    def propose(self, states: Sequence[TaskState], n: int) -> list[list[Proposal]]:
        """For each of the tasks up to `n` rows, in the order of `states`.

        All are legal, new to their task, and no two alike; fewer where none are left. Each says
        who thought of it and, where somebody ranked it, its score.
        """

    @abstractmethod
    def update(self, measurements: Sequence[Measurement]) -> None:
        """Learns from new measurements of any task, its ranker included."""
