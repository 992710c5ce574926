"""Ansor records: two made by hand, and those of the public files, sketch by sketch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorese.arrays import Ints
from tensorese.language.ansor import Slots, split_steps
from tensorese.language.ansor_check import AnsorHardware
from tensorese.language.ansor_sentence import AnsorGrammar, read_ansor_grammar
from tensorese.records.importers.ansor_workloads import workload_of_key
from tensorese.records.importers.lines import text_lines

V100 = AnsorHardware(threads=1024, vthreads=8, warp=32)


def cpu_steps(outer: int = 2, inner: int = 8, unroll: int = 16, place: int = 3) -> list[list[Any]]:
    """A matmul of 64 x 48 x 80, computed inside its copy to memory."""
    return [
        ["CHW", 2, "local"],
        ["SP", 2, 0, 64, [outer, 4, inner], 1],
        ["SP", 2, 4, 48, [3, 2, 4], 1],
        ["SP", 2, 8, 80, [10], 1],
        ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
        ["FSP", 3, 0, 1, 2],
        ["FSP", 3, 3, 2, 2],
        ["RE", 3, [0, 3, 1, 4, 2, 5]],
        ["CA", 2, 3, place],
        ["FU", 3, [0, 1]],
        ["AN", 3, 0, 3],
        ["PR", 2, 0, f"auto_unroll_max_step${unroll}"],
        ["AN", 2, 9, 2],
    ]


def gpu_steps(
    vthread: int = 2, threads: int = 16, fetch: tuple[int, int] = (96, 4), unroll: int = 1024
) -> list[list[Any]]:
    """A matmul of 256 x 128 x 64 with both operands fetched, the second from an odd region."""
    return [
        ["CHW", 2, "local"],
        ["SP", 2, 0, 256, [1, threads, 2, 2], 1],
        ["SP", 2, 5, 128, [vthread, 4, 1, 4], 1],
        ["SP", 2, 10, 64, [4, 2], 1],
        ["RE", 2, [0, 5, 1, 6, 2, 7, 10, 11, 3, 8, 12, 4, 9]],
        ["FSP", 3, 0, 1, 3],
        ["FSP", 3, 4, 2, 3],
        ["RE", 3, [0, 4, 1, 5, 2, 6, 3, 7]],
        ["CA", 2, 3, 5],
        ["CHR", 1, "shared", [3]],
        ["CA", 2, 3, 6],
        ["FU", 4, [0, 1]],
        ["AN", 4, 0, 5],
        ["FU", 4, [1, 2]],
        ["AN", 4, 1, 4],
        ["FU", 4, [2, 3]],
        ["AN", 4, 2, 6],
        ["FU", 2, [0, 1]],
        ["SP", 2, 0, fetch[0], [fetch[1]], 1],
        ["AN", 2, 1, 2],
        ["FFSP", 2, 0, [1, 2], 1, 1],
        ["AN", 2, 1, 6],
        ["PR", 3, 0, f"auto_unroll_max_step${unroll}"],
    ]


@dataclass(frozen=True, kw_only=True)
class Records:
    """All records of one sketch of one workload."""

    key: str
    body: str
    slots: Slots
    rows: Ints
    valid: tuple[bool, ...]
    hardware: AnsorHardware

    @property
    def grammar(self) -> AnsorGrammar:
        shapes = [spec.shape for spec in workload_of_key(self.key).args]
        return read_ansor_grammar(self.body, self.slots, self.rows, shapes)


def records_of(*programs: list[list[Any]], hardware: AnsorHardware = V100) -> Records:
    """Of one sketch."""
    split = [split_steps(steps) for steps in programs]
    assert len({(body, slots) for body, slots, _ in split}) == 1
    return Records(
        key='["ansor_mm", 64, 80, 48]',
        body=split[0][0],
        slots=split[0][1],
        rows=np.array([decisions for _, _, decisions in split], np.int64),
        valid=(True,) * len(split),
        hardware=hardware,
    )


def lines(path: Path, every: int = 1) -> Iterator[Any]:
    for number, (_, text) in enumerate(text_lines(path)):
        if number % every == 0:
            yield json.loads(text)


def read_sketches(path: Path, every: int = 1) -> list[Records]:
    rows: dict[tuple[str, str, Slots], list[tuple[int, ...]]] = {}
    valid: dict[tuple[str, str, Slots], list[bool]] = {}
    hardware: dict[str, AnsorHardware] = {}
    for record in lines(path, every):
        task, (_, steps) = record["i"]
        body, slots, decisions = split_steps(steps)
        hardware[task[0]] = AnsorHardware.read(task[2])
        rows.setdefault((task[0], body, slots), []).append(decisions)
        valid.setdefault((task[0], body, slots), []).append(record["r"][1] == 0)
    return [
        Records(
            key=key,
            body=body,
            slots=slots,
            rows=np.array(mine, np.int64).reshape(len(mine), -1),
            valid=tuple(valid[key, body, slots]),
            hardware=hardware[key],
        )
        for (key, body, slots), mine in rows.items()
    ]
