"""Rounds over made-up records, without TVM: a learner that picks stored programs, a slow replay."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from cpu_records_support import cpu_measurements
from tensorese.collect.tasklist import ListedTask
from tensorese.iterate.config import IterateConfig
from tensorese.iterate.folder import STORE, Batch, IterationFolder
from tensorese.iterate.learner import Learner, Order
from tensorese.iterate.rounds import Rounds
from tensorese.measure.base import Candidate, Ticket
from tensorese.measure.replay import ReplayMeasurer
from tensorese.records.nouns import Measurement, Program
from tensorese.records.run_entries import PendingRow
from tensorese.records.store import Store

PLATFORM = "box-1c"
CONFIG = IterateConfig(rounds=6, per_task=5, task_share=0.5, least_gain=0.0, in_flight=8)


def records(tasks: int = 6, per_task: int = 60) -> list[Measurement]:
    """One of each program."""
    by_program = {
        m.program.id: m for m in cpu_measurements([PLATFORM], tasks=tasks, per_task=per_task)
    }
    return list(by_program.values())


def tasks_of(measurements: Sequence[Measurement]) -> list[ListedTask]:
    workloads = {m.program.workload.id: m.program.workload for m in measurements}
    return [
        ListedTask(
            workload=workload,
            kind="llvm",
            operator="dense",
            name=f"matmul{number}",
            flops=2.0 * workload.args[0].shape[0],
            networks=(("net", 1 + number % 3),),
        )
        for number, workload in enumerate(workloads.values())
    ]


class PickingLearner(Learner):
    """Picks stored programs by a number that depends on all it has learnt, slowly."""

    def __init__(
        self,
        folder: IterationFolder,
        known: Sequence[Measurement],
        secs: float,
        barred: Set[str] = frozenset(),
    ) -> None:
        self.folder, self.secs, self.barred = folder, secs, barred
        self.programs: dict[str, list[Program]] = {}
        for m in known:
            self.programs.setdefault(m.program.workload.id, []).append(m.program)
        self.orders: list[Order] = []
        self._due: list[tuple[float, Order]] = []
        self._messages: list[dict[str, Any]] = [{"ready": "base"}]

    def ask(self, order: Order) -> None:
        self.orders.append(order)
        self._due.append((time.time() + self.secs, order))

    def poll(self, secs: float = 0.0) -> list[dict[str, Any]]:
        if self._due and self._due[0][0] <= time.time():
            self._obey(self._due.pop(0)[1])
        elif not self._messages:
            time.sleep(min(secs, 0.01))
        messages, self._messages = self._messages, []
        return messages

    def pause(self, paused: bool) -> None: ...

    def close(self) -> None: ...

    def _obey(self, order: Order) -> None:
        model = self._digest(order.learnt)
        place = self.folder.model_path(order.learnt)
        if order.learnt and not place.exists():
            place.mkdir()
            (place / "config.json").write_text(model)
        if order.tasks:
            self.folder.write_batch(self._batch(order, model))
        self._messages.append({"done": order.number, "learnt": order.learnt, "model": model})

    def _digest(self, learnt: int) -> str:
        """Of what the first so many rounds have measured."""
        batches = self.folder.batches(learnt)
        workloads = {task: programs[0].workload for task, programs in self.programs.items()}
        ids = {program.id for batch in batches for program, _ in batch.programs(workloads)}
        with Store.open(self.folder.path / STORE, create=True) as store:
            seen = {m.program.id: m.latency for m in store.measurements()}
        assert ids <= seen.keys(), "a model must not be asked to learn what is not measured"
        text = repr(sorted((name, seen[name]) for name in ids))
        return hashlib.sha256(text.encode()).hexdigest()[:8] if learnt else "base"

    def _batch(self, order: Order, model: str) -> Batch:
        rng = np.random.default_rng([order.number, *model.encode()])
        earlier = self.folder.batches(order.number)
        gone = {row.row for batch in earlier for _, rows in batch.rows for row in rows}
        rows, over, sketches = [], {}, {}
        for task, n in order.tasks:
            left = [p for p in self.programs[task] if p.decisions not in gone]
            left = [] if task in self.barred else left
            chosen = [left[k] for k in rng.permutation(len(left))[:n]]
            sketches |= {p.sketch.id: p.sketch for p in chosen}
            if len(chosen) < n:
                over[task] = "every program of its space was tried"
            written = [
                PendingRow(sketch=p.sketch.id, row=p.decisions, origin=f"tlm:{model}", score=0.5)
                for p in chosen
            ]
            if written:
                rows.append((task, written))
        return Batch(
            number=order.number, model=model, learnt=order.learnt, rows=rows, sketches=sketches,
            over=over, span=(time.time() - self.secs, time.time()),
        )  # fmt: skip


class Slowly(ReplayMeasurer):
    """Stores one measurement after another with a pause between them."""

    secs = 0.0

    def submit(self, candidates: Sequence[Candidate]) -> Ticket:
        ticket = Ticket(len(candidates))
        for index, candidate in enumerate(candidates):
            time.sleep(self.secs)
            for _, measurement in super().submit([candidate]):
                ticket.put((index, measurement))
        return ticket


def open_run(
    out: Path, tasks: Sequence[ListedTask], config: IterateConfig, **changed: Any
) -> IterationFolder:
    described = [
        {"workload": t.workload.id, "name": t.name, "weight": t.networks[0][1], "flops": t.flops}
        for t in tasks
    ]
    head = {"target": "{}", "platform": PLATFORM, "model": "base", "data": [], "learning": {}}
    head |= {"config": dict(config.fixed()), "tasks": described}
    folder = IterationFolder.open(out, {**head, **changed}, tasks)
    folder.model_path(0).mkdir(exist_ok=True)
    return folder


def run_rounds(
    out: Path,
    known: Sequence[Measurement],
    config: IterateConfig = CONFIG,
    *,
    secs: float = 0.0,
    measurer: ReplayMeasurer | None = None,
    barred: Set[str] = frozenset(),
) -> Rounds:
    tasks = tasks_of(known)
    folder = open_run(out, tasks, config)
    measurer = measurer or Slowly(known, PLATFORM)
    if isinstance(measurer, Slowly):
        measurer.secs = secs / 10
    with Store.open(out / STORE, create=True) as store:
        measurer.journal = store
        rounds = Rounds(
            folder, tasks, store=store, measurer=measurer, config=config, platform=PLATFORM,
            learner=PickingLearner(folder, known, secs, barred),
        )  # fmt: skip
        if hasattr(measurer, "stop"):
            measurer.stop = rounds.stop
        rounds.run()
    return rounds
