"""Made-up matmul records with a known best tile: for tests and for trying things without data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tensorese.language import split_steps
from tensorese.records.nouns import (
    Measurement,
    Platform,
    Program,
    Sketch,
    Status,
    TensorSpec,
    Workload,
)

SIZES = (64, 96, 128, 192, 256, 384, 512, 768)


def matmul_workload(m: int, n: int, k: int) -> Workload:
    shapes = ((m, k), (k, n), (m, n))
    args = tuple(TensorSpec(shape=shape, dtype="float32") for shape in shapes)
    return Workload(operator="matmul", args=args, source="ansor")


def matmul_program(
    workload: Workload, tile: Sequence[int], unroll: int, *, short: bool = False
) -> Program:
    """`short`: a sketch that neither splits the reduction nor unrolls."""
    (m, k), (_, n) = workload.args[0].shape, workload.args[1].shape
    steps = [
        ["SP", 2, 0, m, [tile[0], tile[1]], 1],
        ["SP", 2, 3, n, [tile[2], tile[3]], 1],
        ["SP", 2, 6, k, [tile[4]], 1],
        ["RE", 2, [0, 3, 1, 4, 6, 2, 5, 7]],
        ["FU", 2, [0, 1]],
        ["AN", 2, 0, 3],
        ["PR", 2, 0, f"auto_unroll_max_step${unroll}"],
        ["AN", 2, 6, 2],
    ]
    if short:
        steps = [step for k, step in enumerate(steps) if k not in (2, 6)]
    body, slots, decisions = split_steps(steps)
    sketch = Sketch(dialect="ansor", body=body, slots=slots)
    return Program(workload=workload, sketch=sketch, decisions=decisions)


def _latency(workload: Workload, tile: Sequence[int], unroll: int, bias: float) -> float:
    """Smooth in the logarithms, the best vector length and row tile differing by platform."""
    (m, k), (_, n) = workload.args[0].shape, workload.args[1].shape
    lanes = math.log2(tile[3])
    rows = math.log2(tile[1])
    depth = math.log2(max(tile[4], 1))
    penalty = (
        0.30 * (lanes - 4 + bias) ** 2 + 0.15 * (rows - 2 - bias) ** 2 + 0.05 * (depth - 3) ** 2
    )
    return m * n * k * 1e-11 * (1.0 + penalty + 0.2 * (unroll == 0))


def synthetic_measurements(
    *,
    platforms: Sequence[str] = ("toy",),
    tasks: int = 6,
    per_task: int = 80,
    failing: float = 0.05,
    seed: int = 0,
    short: int = 0,
) -> Iterator[Measurement]:
    """`per_task` records of each task and platform; a share of them failed.

    Of every four programs `short` are of a shorter sketch.
    """
    rng = np.random.default_rng(seed)
    sizes = [tuple(int(x) for x in rng.choice(SIZES, 3)) for _ in range(4 * tasks)]
    for m, n, k in list(dict.fromkeys(sizes))[:tasks]:
        workload = matmul_workload(m, n, k)
        for number in range(per_task * len(platforms)):
            where = number % len(platforms)
            powers = [int(2 ** rng.integers(0, 6)) for _ in range(5)]
            for outer, extent in ((0, m), (2, n)):  # lengths divide what they split
                while extent % (powers[outer] * powers[outer + 1]):
                    powers[outer] //= 2
            unroll = int(rng.choice([0, 16, 64, 512]))
            failed = rng.random() < failing
            seconds = _latency(workload, powers, unroll, bias=0.5 * where)
            yield Measurement(
                program=matmul_program(workload, powers, unroll, short=number % 4 < short),
                platform=Platform(name=platforms[where]),
                status=Status.RUN_ERROR if failed else Status.OK,
                run_secs=() if failed else (seconds * float(1 + 0.01 * rng.random()),),
                origin="synthetic",
                id=f"{seed}-{m}-{n}-{k}-{number}",
                time=0.0,
            )
