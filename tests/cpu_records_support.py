"""Made-up records of matmuls in MetaSchedule's words for a CPU, with a known best tile."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tensorese.records.nouns import (
    Measurement,
    Platform,
    Program,
    Sketch,
    Status,
    TensorSpec,
    Workload,
)
from tensorese.space.decisions import DecisionSpace
from tensorese.space.slots import Choice, Tile

_TRACE: list[Any] = [
    ["GetSBlock", [], ["matmul", "main"], ["b1"]],
    ["GetSBlock", [], ["root", "main"], ["b2"]],
    ["GetLoops", ["b1"], [], ["l3", "l4", "l5"]],
    ["SamplePerfectTile", ["l3"], [4, 64], ["v6", "v7", "v8", "v9"]],
    ["Split", ["l3", "v6", "v7", "v8", "v9"], [1, 0], ["l10", "l11", "l12", "l13"]],
    ["SamplePerfectTile", ["l4"], [4, 64], ["v14", "v15", "v16", "v17"]],
    ["Split", ["l4", "v14", "v15", "v16", "v17"], [1, 0], ["l18", "l19", "l20", "l21"]],
    ["SamplePerfectTile", ["l5"], [2, 64], ["v22", "v23"]],
    ["Split", ["l5", "v22", "v23"], [1, 0], ["l24", "l25"]],
    ["Reorder", ["l10", "l18", "l11", "l19", "l24", "l12", "l20", "l25", "l13", "l21"], [], []],
    ["Annotate", ["b2", 0], ["meta_schedule.parallel"], []],
    ["SampleCategorical", [], [[0, 16, 64, 512], [0.25] * 4], ["v27"]],
    ["Annotate", ["b2", "v27"], ["meta_schedule.unroll_explicit"], []],
]
_SLOTS = ((3, 4), (5, 4), (7, 2), (11, -1))
SKETCH = Sketch(
    dialect="metaschedule",
    body=json.dumps([_TRACE, [[index, None] for index, _ in _SLOTS]]),
    slots=_SLOTS,
)


def cpu_space(m: int, n: int, k: int) -> DecisionSpace:
    """Of the same sketch."""
    slots = (
        Tile(column=0, extent=m, parts=4, limit=64),
        Tile(column=4, extent=n, parts=4, limit=64),
        Tile(column=8, extent=k, parts=2, limit=64),
        Choice(column=10, options=(0, 16, 64, 512), purpose="meta_schedule.unroll_explicit"),
    )
    return DecisionSpace(sketch=SKETCH, slots=slots)


def cpu_workload(m: int, n: int, k: int) -> Workload:
    shapes = ((m, k), (k, n), (m, n))
    args = tuple(TensorSpec(shape=shape, dtype="float32") for shape in shapes)
    return Workload(operator="matmul", args=args)


def _cut(rng: np.random.Generator, extent: int, parts: int) -> list[int]:
    """A power of two dealt to the parts at random."""
    places = rng.integers(0, parts, int(math.log2(extent)))
    return [int(2 ** (places == part).sum()) for part in range(parts)]


def seconds_of(row: Sequence[int], bias: float) -> float:
    lanes, rows, depth = (math.log2(row[k]) for k in (7, 3, 9))
    penalty = 0.5 * (lanes - 4 + bias) ** 2 + 0.3 * (rows - 2 - bias) ** 2
    return 1e-4 * (1 + penalty + 0.1 * (depth - 3) ** 2 + 0.3 * (row[10] == 0))


def cpu_measurements(
    platforms: Sequence[str], *, tasks: int = 12, per_task: int = 24, split: str = "", seed: int = 0
) -> Iterator[Measurement]:
    """The same programs on every platform, whose best tiles differ with their place in the list."""
    rng = np.random.default_rng(seed)
    for number in range(tasks):
        # Test tasks have sizes that no training task has.
        m, n = 2 ** (4 + number % 4), 2 ** (6 + number // 4 % 3)
        k = 256 if split == "test" else 64 * 2 ** (number // 12 % 2)
        workload = cpu_workload(m, n, k)
        for _ in range(per_task):
            row = [*_cut(rng, m, 4), *_cut(rng, n, 4), *_cut(rng, k, 2), int(rng.integers(4))]
            program = Program(workload=workload, sketch=SKETCH, decisions=tuple(row))
            for where, name in enumerate(platforms):
                noise = 1 + 0.02 * rng.random()
                yield Measurement(
                    program=program,
                    platform=Platform(name=name, target=_target(name)),
                    status=Status.OK,
                    run_secs=(seconds_of(row, 1.5 * where) * noise,),
                    origin="random",
                    split=split,
                    build_secs=0.1,
                    id=f"{seed}{split}-{program.id}-{name}-{rng.integers(1 << 30)}",
                    time=0.0,
                )


def _target(name: str) -> str:
    mcpu, _, cores = name.rpartition("-")
    return json.dumps({"kind": "llvm", "mcpu": mcpu, "num-cores": int(cores.rstrip("c"))})
