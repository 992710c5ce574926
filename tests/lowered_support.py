"""Made-up rows of lowered programs, where a test needs no TVM: the same program, the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tensorese.features.lowered import (
    COARSE,
    COLUMNS,
    Lowered,
    LoweredCache,
    LowerStatus,
    Ragged,
)
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.records.nouns import program_id
from tensorese.records.store import Store
from tensorese.targets import Target

MOST = 4
"""Stores of a program; one in thirteen has none."""
NOISY = 4


def made_up(programs: Sequence[tuple[str, Sequence[int]]]) -> Ragged:
    """Of programs by id and decisions: these in the first columns, and noise in a few more."""
    values, counts, coarse = [], [], np.zeros((len(programs), len(COARSE)), np.float32)
    for k, (name, decisions) in enumerate(programs):
        rng = np.random.default_rng(int(name, 16))
        count = 0 if int(name, 16) % 13 == 0 else int(rng.integers(1, MOST + 1))
        rows = np.zeros((count, COLUMNS), np.float32)
        rows[:, : len(decisions)] = np.log2(1.0 + np.abs(decisions))
        rows[:, : len(decisions) + NOISY] += rng.normal(0.0, 0.1, (count, len(decisions) + NOISY))
        values.append(rows)
        counts.append(count)
        coarse[k] = len(decisions)
    empty = np.zeros((0, COLUMNS), np.float32)
    return Ragged(
        values=np.concatenate([empty, *values]),
        counts=np.array(counts, dtype=np.int64),
        coarse=coarse,
    )


def made_up_of(programs: ProgramSet) -> Ragged:
    rows: list[tuple[str, Sequence[int]]] = [("", ())] * len(programs)
    for members, decisions in zip(programs.members, programs.decisions, strict=True):
        for index, row in zip(members.tolist(), decisions.tolist(), strict=True):
            rows[index] = (programs.ids[index], row)
    return made_up(rows)


def with_made_up(programs: ProgramSet) -> ProgramSet:
    return replace(programs, lowered=made_up_of(programs))


def keep_made_up(folder: Path) -> None:
    """Beside a store of CPU programs, as if they had been lowered for its first platform."""
    with Store.open(folder) as store:
        programs = read_programs([store], split="all")
        target = Target.from_json(store.targets()[programs.platforms[0]])
    ragged, cache = made_up_of(programs), LoweredCache(folder, target)
    for k, name in enumerate(programs.ids):
        rows = ragged.take(np.array([k])).values
        status = LowerStatus.OK if len(rows) else LowerStatus.NO_ROWS
        cache.add(name, Lowered(status, rows))
    cache.flush()


def made_up_rows(workload: str, sketch: str, decisions: Sequence[Sequence[int]]) -> Ragged:
    return made_up([(program_id(workload, sketch, row), row) for row in decisions])
