"""A task made by hand, free of TVM: two sketches over small tiles, and how fast their rows are."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tensorese.records.nouns import (
    Measurement,
    Platform,
    Sketch,
    Status,
    TensorSpec,
    Workload,
)
from tensorese.search.contracts import Proposal, TaskState
from tensorese.space.decisions import DecisionSpace
from tensorese.space.limits import Product
from tensorese.space.locations import ConsumerLoop, LoopRule
from tensorese.space.slots import Choice, Location, Tile
from tensorese.space.space import TaskSpace

PLATFORM = Platform(name="toy", target='{"kind":"llvm"}')
UNROLL = (0, 16, 64, 512)


def toy_sketch(tiles: tuple[int, ...], *, located: bool, name: str) -> Sketch:
    """A body that holds what rankers read: the kind and the attributes of each decision."""
    instructions: list[Any] = [["GetSBlock", [], [name], ["b0"]]]
    slots: list[tuple[int, int]] = []
    for parts in tiles:
        slots.append((len(instructions), parts))
        instructions.append(["SamplePerfectTile", ["l"], [parts, 64], []])
    if located:
        slots.append((len(instructions), -1))
        instructions.append(["SampleCategorical", [], [list(UNROLL), [0.25] * 4], ["v"]])
        slots.append((len(instructions), -1))
        instructions.append(["SampleComputeLocation", ["b0"], [], ["l"]])
    body = json.dumps([instructions, [[index, None] for index, _ in slots]])
    return Sketch(dialect="metaschedule", body=body, slots=tuple(slots))


def toy_space(
    extents: tuple[int, int, int] = (64, 48, 32), *, name: str = "a", limited: bool = False
) -> DecisionSpace:
    """Two spatial tiles in four parts, a reduction in two, an unroll choice and a location."""
    slots = (
        Tile(column=0, extent=extents[0], parts=4, limit=64),
        Tile(column=4, extent=extents[1], parts=4, limit=64),
        Tile(column=8, extent=extents[2], parts=2, limit=64),
        Choice(column=10, options=UNROLL, purpose="meta_schedule.unroll_explicit"),
        Location(column=11, instruction=5),
    )
    order = [(0, True), (4, True), (1, True), (5, True), (8, False), (2, True), (6, True)]
    loops = tuple(ConsumerLoop(columns=(c,), constant=1, parallel=p) for c, p in order)
    return DecisionSpace(
        sketch=toy_sketch((4, 4, 2), located=True, name=name),
        slots=slots,
        locators={11: LoopRule(loops=loops, inline=True)},
        limits=(Product(columns=(3, 7), low=4, high=64),) if limited else (),
    )


def one_row_space() -> DecisionSpace:
    return DecisionSpace(sketch=toy_sketch((), located=False, name="only"), slots=())


def few_rows_space() -> DecisionSpace:
    """7 rows: the ways to write 64 as a product of two."""
    tile = Tile(column=0, extent=64, parts=2, limit=-1)
    return DecisionSpace(sketch=toy_sketch((2,), located=False, name="few"), slots=(tile,))


def workload(extents: tuple[int, int, int] = (64, 48, 32)) -> Workload:
    m, n, k = extents
    shapes = ((m, k), (k, n), (m, n))
    args = tuple(TensorSpec(shape=shape, dtype="float32") for shape in shapes)
    return Workload(operator="matmul", args=args)


def task_state(*spaces: DecisionSpace, extents: tuple[int, int, int] = (64, 48, 32)) -> TaskState:
    """Of the spaces given, or of two sketches of which one is always slower."""
    given = spaces or (toy_space(extents), toy_space(extents, name="b", limited=True))
    space = TaskSpace(referee=cast(Any, None), sketches=given, probes=())
    return TaskState(workload(extents), space, PLATFORM)


def seconds(sketch: int, row: Iterable[int]) -> float:
    """Smooth in the logarithms: 16 lanes, a register tile of 4, a little unrolling are best."""
    values = list(row)
    if len(values) < 12:
        return 1e-3 * (1 + sum(values))
    logs = np.log2(np.maximum(np.array(values, dtype=np.float64), 1))
    penalty = 0.30 * (logs[7] - 4) ** 2 + 0.2 * (logs[3] - 2) ** 2 + 0.1 * (logs[9] - 2) ** 2
    penalty += 0.5 * (values[10] == 0) + 0.3 * (values[11] < 0) + 0.1 * (logs[0] + logs[4] < 2)
    return float(1e-4 * (1 + penalty) * (1.5 if sketch == 1 else 1.0))


def measured(
    state: TaskState, proposals: Iterable[Proposal], status: Status = Status.OK, **more: Any
) -> list[Measurement]:
    """What a measurer would answer; nothing is added to the state."""
    found = []
    for p in proposals:
        program = state.space.program(p.sketch, p.row, state.workload)
        ran = status in (Status.OK, Status.CENSORED)
        found.append(
            Measurement(
                program=program,
                platform=state.platform,
                status=status,
                run_secs=(seconds(p.sketch, p.row),) if ran else (),
                origin=p.origin,
                id=f"{program.id}-{len(state.measurements)}",
                time=0.0,
                **more,
            )
        )
    return found


def drawn(state: TaskState, n: int, seed: int = 0) -> list[Proposal]:
    """Random rows of every sketch, without a proposer."""
    rng = np.random.default_rng(seed)
    found = []
    for index, space in enumerate(state.space.sketches):
        rows: npt.NDArray[np.int64] = space.sample(n, rng)
        found += [Proposal(sketch=index, row=tuple(row), origin="random") for row in rows.tolist()]
    return found


def without_rows(space: DecisionSpace) -> DecisionSpace:
    """The same tiles under limits that nothing meets."""
    return replace(space, limits=(Product(columns=(3,), low=1000, high=2000),))


class Referee:
    """A limit that has to be asked row by row, as TVM is; it counts."""

    replays = True

    def __init__(self) -> None:
        self.asked = 0

    def legal(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        self.asked += len(rows)
        verdict: npt.NDArray[np.bool_] = rows[:, 3] <= 8
        return verdict

    def reachable(
        self, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        return np.ones(len(low), dtype=np.bool_)
