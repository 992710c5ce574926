"""Small real tasks, a synthetic machine, and a proposer that knows nothing."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.identity import workload_of
from tensorese.measure.base import Cancelled, Candidate, Measurer, Ticket
from tensorese.records.nouns import Measurement, Sketch, Status, Workload, content_id
from tensorese.records.task import Task
from tensorese.search.contracts import Proposal, Proposer, Ranker, TaskState
from tensorese.space.space import task_space
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

TARGET = Target(kind="llvm", cores=2)
PLATFORM = TARGET.platform("made-up-2c")


def matmul_module(n: int, m: int, k: int) -> Any:
    tvm = import_tvm()
    a = tvm.te.placeholder((n, k), name="a")
    b = tvm.te.placeholder((k, m), name="b")
    r = tvm.te.reduce_axis((0, k), name="r")
    c = tvm.te.compute((n, m), lambda i, j: tvm.te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return tvm.IRModule({"main": tvm.te.create_prim_func([a, b, c])})


def masked_module(n: int) -> Any:
    """A product with a choice added to its sums, as TVM fuses an attention mask."""
    te, tirx = import_tvm().te, import_tvm().tirx
    a, b, m = (te.placeholder((n, n), name=name) for name in "abm")
    r = te.reduce_axis((0, n), name="r")
    mask = te.compute((n, n), lambda i, j: tirx.Select(m[i, j] > 0, m[i, j], -m[i, j]), name="mask")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    d = te.compute((n, n), lambda i, j: c[i, j] + mask[i, j], name="d")
    return import_tvm().IRModule({"main": te.create_prim_func([a, b, m, d])})


def masked_task(n: int) -> Task:
    module = masked_module(n)
    return Task(
        name="masked",
        operator="dense",
        workload=workload_of(module),
        target=TARGET.to_json(),
        weight=1,
        flops=2.0 * n**3,
        module=module,
    )


def matmul_task(n: int, m: int = 4, k: int = 4, *, weight: int = 1, name: str = "") -> Task:
    module = matmul_module(n, m, k)
    return Task(
        name=name or f"matmul{n}",
        operator="dense",
        workload=workload_of(module),
        target=TARGET.to_json(),
        weight=weight,
        flops=2.0 * n * m * k,
        module=module,
    )


def made_up_latency(program_id: str, scale: float) -> float:
    """Between one and two times `scale`, fixed by the program."""
    digest = hashlib.sha256(program_id.encode()).digest()
    return scale * (1 + int.from_bytes(digest[:4], "little") / 2**32)


def every_measurement(tasks: Iterable[Task]) -> list[Measurement]:
    """All programs of small tasks, with made-up latencies; one in seven fails."""
    found = []
    for task in tasks:
        space = task_space(task.module, TARGET)
        for index, sketch in enumerate(space.sketches):
            tables = [slot.table for slot in sketch.slots if hasattr(slot, "table")]
            assert len(tables) == len(sketch.slots), "only sketches of tiles and choices"
            rows = np.array([np.concatenate(p) for p in itertools.product(*tables)])
            for row in rows[sketch.legal(rows)]:
                program = space.program(index, row, task.workload)
                fails = int(program.id[:4], 16) % 7 == 0
                secs = () if fails else (made_up_latency(program.id, task.flops / 1e9),)
                found.append(
                    Measurement(
                        program=program,
                        platform=PLATFORM,
                        status=Status.BUILD_ERROR if fails else Status.OK,
                        run_secs=secs,
                        build_secs=0.1,
                        id=content_id("made up", program.id),
                    )
                )
    return found


class MadeUpMeasurer(Measurer):
    """Answers every program at once; `on_submit` may raise in the middle of a batch."""

    def __init__(self, *, status: Status = Status.OK, scale: float = 1e-3) -> None:
        self.cancelled = False
        self.status = status
        self.scale = scale
        self.batches: list[list[str]] = []

    def submit(self, candidates: Sequence[Candidate]) -> Ticket:
        ticket = Ticket(len(candidates))
        if self.cancelled:
            ticket.put(Cancelled("cancelled before it was measured"))
            return ticket
        self.batches.append([candidate.program.id for candidate in candidates])
        for index, candidate in enumerate(candidates):
            ok = self.status is Status.OK
            secs = (made_up_latency(candidate.program.id, self.scale),) if ok else ()
            measurement = Measurement(
                program=candidate.program,
                platform=PLATFORM,
                status=self.status,
                run_secs=secs,
                error="" if ok else "made up to fail",
                origin=candidate.origin,
            )
            if self.journal is not None:
                self.journal.append(measurement)
            ticket.put((index, measurement))
        return ticket

    def cancel(self) -> None:
        self.cancelled = True

    def settle(self) -> None: ...

    def close(self) -> None: ...


class Guess(Proposer):
    """Random rows that are new; it teaches its ranker and knows nothing itself."""

    name = "guess"

    def __init__(self, ranker: Ranker | None = None) -> None:
        self.ranker = ranker or Ignorant()

    def update(self, measurements: Sequence[Measurement]) -> None:
        self.ranker.update(measurements)

    def propose(self, states: Sequence[TaskState], n: int) -> list[list[Proposal]]:
        return [self._propose(state, n) for state in states]

    def _propose(self, state: TaskState, n: int) -> list[Proposal]:
        rng = state.rng(0)
        found: dict[tuple[int, tuple[int, ...]], Proposal] = {}
        for _ in range(20):
            for sketch, space in enumerate(state.space.sketches):
                for row in space.sample(n, rng):
                    key = (sketch, tuple(int(v) for v in row))
                    if key not in state.seen and len(found) < n:
                        found[key] = Proposal(sketch=sketch, row=key[1], origin="guess", score=0.5)
        return list(found.values())


class Ignorant:
    """A ranker without an opinion that remembers what it was told."""

    name = "ignorant"
    needs = "decisions"

    def __init__(self) -> None:
        self.told: list[str] = []

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        return np.zeros(len(np.asarray(decisions)), np.float32)

    def update(self, measurements: Sequence[Measurement]) -> None:
        self.told.extend(m.program.id for m in measurements)
