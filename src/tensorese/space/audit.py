"""How far a space agrees with TVM: of our legal rows, how many are; of stock's, how many we take.

Stock's rows are drawn as its search draws them: fresh samples of the sketch, then its own
mutators applied to what passed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorese.arrays import Ints
from tensorese.space.replay import SCHEDULE_ERRORS, decisions_of
from tensorese.space.space import TaskSpace
from tensorese.space.variation import mutate

_FRESH_SECS = 6.0  # of stock sampling, where nearly everything fails, before our rows seed it


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Counts of one sketch, or of a task when added up."""

    called_legal: int = 0
    were_legal: int = 0
    stock_accepted: int = 0
    we_accepted: int = 0

    @property
    def precision(self) -> float:
        return self.were_legal / self.called_legal if self.called_legal else float("nan")

    @property
    def recall(self) -> float:
        return self.we_accepted / self.stock_accepted if self.stock_accepted else float("nan")

    def __add__(self, other: Audit) -> Audit:
        return Audit(
            called_legal=self.called_legal + other.called_legal,
            were_legal=self.were_legal + other.were_legal,
            stock_accepted=self.stock_accepted + other.stock_accepted,
            we_accepted=self.we_accepted + other.we_accepted,
        )


def audit(space: TaskSpace, sketch: int, *, legal: int, stock: int, seed: int = 0) -> Audit:
    """`legal` of our rows (half of them mutated) and `stock` of stock's rows, put to the other."""
    rng = np.random.default_rng(seed)
    decided = space.sketches[sketch]
    rows = decided.sample((legal + 1) // 2, rng)
    rows = np.vstack([rows, mutate(decided, rows, rng)])[:legal]
    were = sum(space.is_legal(sketch, row) for row in rows)
    accepted = stock_rows(space, sketch, stock, seeds=rows[:8], seed=seed)
    ours = decided.legal(accepted)
    return Audit(
        called_legal=len(rows),
        were_legal=were,
        stock_accepted=len(accepted),
        we_accepted=int(ours.sum()),
    )


def stock_rows(space: TaskSpace, sketch: int, n: int, *, seeds: Ints, seed: int = 0) -> Ints:
    """Up to `n` rows that stock sampling and stock mutators produce, that postprocessing passes
    and that TVM lowers."""
    stock = _Stock(space, sketch, seed)
    rows: list[tuple[int, ...]] = []
    until = time.monotonic() + _FRESH_SECS
    while len(rows) < (n + 1) // 2 and time.monotonic() < until:
        stock.keep(stock.fresh(), rows)
    stock.start_from(seeds if len(rows) < 4 else ())
    for _ in range(20 * n):
        if len(rows) >= n:
            break
        stock.keep(stock.mutated(), rows)
    width = space.sketches[sketch].n_columns
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)


class _Stock:
    """Stock MetaSchedule's way to a candidate: a trace, replayed, postprocessed."""

    def __init__(self, space: TaskSpace, sketch: int, seed: int) -> None:
        self.space, self.sketch = space, sketch
        self.tvm = space.referee.tvm
        self.draws = 1 + seed * 1_000_003
        self.rng = np.random.default_rng(seed)
        self.mutators = list(space.referee.context.space_generator.mutator_probs)
        self.population: list[Any] = []

    def fresh(self) -> Any:
        return self.tvm.s_tir.schedule.Trace(self.space.referee.instructions[self.sketch], {})

    def mutated(self) -> Any:
        if not self.population or not self.mutators:
            return self.fresh()
        trace = self.population[int(self.rng.integers(len(self.population)))]
        mutant = self.mutators[int(self.rng.integers(len(self.mutators)))].apply(trace)
        return self.fresh() if mutant is None else mutant  # nothing there to mutate

    def start_from(self, rows: Any) -> None:
        # Not simplified: that drops decisions nothing depends on, and with them columns.
        instructions = self.space.referee.instructions[self.sketch]
        for row in rows:
            values = self.space.probes[self.sketch].values(row)
            decided = {instructions[index]: value for index, value in values}
            self.population.append(self.tvm.s_tir.schedule.Trace(instructions, decided))

    def keep(self, trace: Any, rows: list[tuple[int, ...]]) -> None:
        """Replays; what passes joins the population and `rows`."""
        self.draws += 1
        schedule = self.tvm.s_tir.Schedule(self.space.referee.module, seed=self.draws)
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
            body, decisions = schedule.trace, decisions_of(schedule.trace)
            schedule.enter_postproc()
            postprocs = self.space.referee.context.space_generator.postprocs
            passed = all(postproc.apply(schedule) for postproc in postprocs)
        except SCHEDULE_ERRORS:
            return
        if passed and self.space.lowers(self.sketch, schedule):
            rows.append(decisions)
            self.population.append(self.tvm.s_tir.schedule.Trace(body.insts, body.decisions))
