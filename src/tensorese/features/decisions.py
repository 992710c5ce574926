"""Decisions as numbers a small model can learn from, by name: sketches of a task share names.

Tiles are on a log scale, where a product is a sum; beside the factors stand what loops do with
them: the extent inside each level, the product of a level over the axes that have it (register
tiles, threads), and how much of an innermost factor is a power of two (full vectors).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from tensorese.arrays import Floats64, Ints
from tensorese.language.trace import read_trace
from tensorese.records.nouns import Sketch

Named = dict[str, Floats64]

VERSION = "1"
"""Counted up when a name comes to stand for another number."""
_LANES = 64  # powers of two up to here tell a full vector from a remainder loop


def named_features(sketch: Sketch, rows: Ints) -> Named:
    """Columns `[n]` by name. What a sketch lacks it does not name."""
    rows = rows.reshape(len(rows), sketch.n_decisions)
    columns: Named = {f"sketch {sketch.id}": np.ones(len(rows))}
    levels: dict[tuple[int, int], Floats64] = {}
    column = 0
    counts: Counter[str] = Counter()  # by kind: a sketch may have another slot in between
    for kind, length, options in _slots(sketch):
        part = rows[:, column : column + max(1, length)]
        column += max(1, length)
        number = counts[kind]
        counts[kind] += 1
        if length > 0:
            columns |= _tile(f"tile {number}", part)
            logs = np.log2(np.maximum(part, 1))
            for level in range(length):
                key = (length, level)
                levels[key] = levels.get(key, np.zeros(len(rows))) + logs[:, level]
        elif options:
            columns |= _choice(f"{kind} {number}", part[:, 0], options)
        else:
            columns |= {
                f"{kind} {number} at {value}": (part[:, 0] == value).astype(np.float64)
                for value in np.unique(part)
            }
    return columns | _levels(levels)


def emphasis(names: Mapping[str, int]) -> Floats64:
    """How much a difference in each feature counts, tried on measured convolutions and matmuls."""
    weights = np.ones(len(names))
    for name, column in names.items():
        if name.endswith(".lanes"):
            weights[column] = 2.5
        elif name.startswith(("level ", "inside ", "body")) or " is " in name or " at " in name:
            weights[column] = 0.5
    return weights


def table(named: Mapping[str, Floats64], names: Mapping[str, int], n: int) -> Floats64:
    """`[n, len(names)]`; unknown names are dropped, missing ones are 0."""
    values = np.zeros((n, len(names)))
    for name, column in named.items():
        if name in names:
            values[:, names[name]] = column
    return values


@lru_cache(maxsize=4096)
def _slots(sketch: Sketch) -> list[tuple[str, int, tuple[float, ...]]]:
    """`(primitive, tile parts or -1, options)` per slot; Ansor's steps show parts alone."""
    traced = sketch.dialect == "metaschedule"
    trace = read_trace(sketch.body, sketch.slots) if traced else ()
    slots: list[tuple[str, int, tuple[float, ...]]] = []
    for index, length in sketch.slots:
        kind, options = "decision", tuple[float, ...]()
        if index < len(trace):
            kind = trace[index].kind
            if kind == "SampleCategorical":
                options = tuple(float(option) for option in trace[index].attributes[0])
        slots.append((kind, length, options))
    return slots


def _tile(name: str, part: Ints) -> Named:
    logs = np.log2(np.maximum(part, 1))
    last = part.shape[1] - 1
    columns = {f"{name}.{level}": logs[:, level] for level in range(last + 1)}
    for level in range(1, last):
        columns[f"{name}.inside {level}"] = logs[:, level:].sum(1)
    columns[f"{name}.lanes"] = np.log2(np.gcd(np.maximum(part[:, last], 1), _LANES))
    return columns


def _choice(name: str, picked: Ints, options: tuple[float, ...]) -> Named:
    inside = np.clip(picked, 0, len(options) - 1)
    columns: Named = {name: np.log2(1.0 + np.abs(np.array(options)))[inside]}
    for index in range(len(options)):
        columns[f"{name} is {index}"] = (picked == index).astype(np.float64)
    return columns


def _levels(levels: Mapping[tuple[int, int], Floats64]) -> Named:
    """Products over axes, per level; axes with as many levels are of one kind."""
    columns: Named = {}
    for (parts, level), logs in levels.items():
        columns[f"level {level} of {parts}"] = logs
        if 0 < level < parts - 1:
            inner = [levels[parts, deeper] for deeper in range(level, parts)]
            columns[f"inside {level} of {parts}"] = np.sum(inner, axis=0)
    innermost = [logs for (parts, level), logs in levels.items() if level == parts - 1]
    if len(innermost) > 1:
        columns["body"] = np.sum(innermost, axis=0)
    return columns
