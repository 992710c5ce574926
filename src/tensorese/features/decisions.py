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
    found: Named = {f"sketch {sketch.id}": np.ones(len(rows))}
    levels: dict[tuple[int, int], Floats64] = {}
    column = 0
    counts: Counter[str] = Counter()  # by kind: a sketch may have another slot in between
    for kind, length, options in _slots(sketch):
        part = rows[:, column : column + max(1, length)]
        column += max(1, length)
        number = counts[kind]
        counts[kind] += 1
        if length > 0:
            found |= _tile(f"tile {number}", part)
            logs = np.log2(np.maximum(part, 1))
            for level in range(length):
                key = (length, level)
                levels[key] = levels.get(key, np.zeros(len(rows))) + logs[:, level]
        elif options:
            found |= _choice(f"{kind} {number}", part[:, 0], options)
        else:
            found |= {
                f"{kind} {number} at {value}": (part[:, 0] == value).astype(np.float64)
                for value in np.unique(part)
            }
    return found | _levels(levels)


def emphasis(names: Mapping[str, int]) -> Floats64:
    """How much a difference in each feature counts, tried on measured convolutions and matmuls."""
    found = np.ones(len(names))
    for name, column in names.items():
        if name.endswith(".lanes"):
            found[column] = 2.5
        elif name.startswith(("level ", "inside ", "body")) or " is " in name or " at " in name:
            found[column] = 0.5
    return found


def table(named: Mapping[str, Floats64], names: Mapping[str, int], n: int) -> Floats64:
    """`[n, len(names)]`; unknown names are dropped, missing ones are 0."""
    values = np.zeros((n, len(names)))
    for name, column in named.items():
        if name in names:
            values[:, names[name]] = column
    return values


@lru_cache(maxsize=4096)
def _slots(sketch: Sketch) -> list[tuple[str, int, tuple[float, ...]]]:
    """`(primitive, tile parts or -1, options)` per slot; of Ansor's steps parts alone are told."""
    traced = sketch.dialect == "metaschedule"
    trace = read_trace(sketch.body, sketch.slots) if traced else ()
    found: list[tuple[str, int, tuple[float, ...]]] = []
    for index, length in sketch.slots:
        kind, options = "decision", tuple[float, ...]()
        if index < len(trace):
            kind = trace[index].kind
            if kind == "SampleCategorical":
                options = tuple(float(option) for option in trace[index].attributes[0])
        found.append((kind, length, options))
    return found


def _tile(name: str, part: Ints) -> Named:
    logs = np.log2(np.maximum(part, 1))
    last = part.shape[1] - 1
    found = {f"{name}.{level}": logs[:, level] for level in range(last + 1)}
    for level in range(1, last):
        found[f"{name}.inside {level}"] = logs[:, level:].sum(1)
    found[f"{name}.lanes"] = np.log2(np.gcd(np.maximum(part[:, last], 1), _LANES))
    return found


def _choice(name: str, picked: Ints, options: tuple[float, ...]) -> Named:
    inside = np.clip(picked, 0, len(options) - 1)
    found: Named = {name: np.log2(1.0 + np.abs(np.array(options)))[inside]}
    for index in range(len(options)):
        found[f"{name} is {index}"] = (picked == index).astype(np.float64)
    return found


def _levels(levels: Mapping[tuple[int, int], Floats64]) -> Named:
    """Products over axes, per level; axes with as many levels are of one kind."""
    found: Named = {}
    for (parts, level), logs in levels.items():
        found[f"level {level} of {parts}"] = logs
        if 0 < level < parts - 1:
            inner = [levels[parts, deeper] for deeper in range(level, parts)]
            found[f"inside {level} of {parts}"] = np.sum(inner, axis=0)
    innermost = [logs for (parts, level), logs in levels.items() if level == parts - 1]
    if len(innermost) > 1:
        found["body"] = np.sum(innermost, axis=0)
    return found
