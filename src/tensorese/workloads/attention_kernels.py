"""Attention by blocks of query rows: what one kernel computes, and how.

    S^T[j, i] = sum_d K[j, d] * (scale * Q[i, d]) + mask[i, j]
    P^T[j, i] = exp(S^T[j, i] - max over j)
    O[i, :]   = sum_j P^T[j, i] * V[j, :] / sum_j P^T[j, i]

The scores of a block against all keys stay in the second cache. They are kept transposed: vectors
run along query rows, so the softmax is elementwise, and keys and values are read as they come.
Nothing is searched: both products keep a tile of sums in registers.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tensorese.tvm_env import import_tvm

MARK = "tensorese.attention"
"""Annotation of the kernel's block."""
KERNEL = "attention"
_NEAR = 1 << 20
"""Bytes of a block's scores, at most: what a second-level cache holds."""
_PANEL = 64
"""Keys whose scores and values stay in the first cache while all rows of a block meet them."""
_LEAST = 2.0**-126
_OPAQUE = 8  # relax operator pattern: nothing is fused with it


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Of a block of query rows: `rows` by `keys` scores, then `group` by `columns` results are in
    registers at a time, in vectors of `lanes` and of `wide`."""

    rows: int
    keys: int
    group: int
    columns: int
    lanes: int
    wide: int


def tiles(queries: int, keys: int, width: int, *, lanes: int, registers: int) -> Tiles | None:
    """For values of so many columns; None where no block of rows or vector of columns is whole."""
    sums = 3 * registers // 4  # the others hold what is multiplied
    wide = next((n for n in (16, 8, 4) if n <= lanes and width % n == 0), 0)
    sizes = [n * lanes for n in (2, 3, 4, 1) if n * lanes <= queries]
    if not wide or not sizes:
        return None
    near = [rows for rows in sizes if 4 * rows * keys <= _NEAR] or [min(sizes)]
    # Rows of one vector read every key and value for few products.
    rows = min(near, key=lambda n: -(-queries // n) * n * (17 if n == lanes else 16))
    vectors = width // wide
    columns = max(n for n in range(1, sums // 4) if vectors % n == 0)
    group = max(n for n in range(1, sums // columns + 1) if rows % n == 0)
    return Tiles(
        rows=rows,
        keys=min(sums * lanes // rows, keys),
        group=group,
        columns=columns * wide,
        lanes=lanes,
        wide=wide,
    )


def vectors_of(target: Any) -> tuple[int, int]:
    """Elements of a float32 vector, and how many vector registers a CPU has."""
    codegen: Any = importlib.import_module("tvm.target.codegen")
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    if "avx512f" in features:
        return 16, 32
    return (8, 16) if "avx" in features else (4, 32 if "neon" in features else 16)


def is_attention(module: Any) -> bool:
    return MARK in (module["main"].attrs or {})


def attention_kernel(
    query: Sequence[int],
    key: Sequence[int],
    value: Sequence[int],
    mask: Sequence[int] | None,
    *,
    scale: float,
    safe: bool,
    tiled: Tiles,
) -> Any:
    """Of tensors [..., rows, columns] of equal leading extents, and a mask [..., keys, queries] of
    the same rank whose extents may be 1, transposed like the scores.

    `safe`: a row that may see no key at all is zero, not undefined.
    """
    build: Any = importlib.import_module("tvm.script.ir_builder")
    script: Any = importlib.import_module("tvm.script.ir_builder.tirx")
    import_tvm()
    with build.IRBuilder() as builder:
        with script.prim_func(s_tir=True):
            script.func_name("main")
            script.func_attr({"tirx.noalias": True, "op_pattern": _OPAQUE, MARK: True})
            _Kernel(script, query, key, value, mask, tiled).write(scale, safe=safe)
        return builder.get()


class _Kernel:
    """Writes the loops, as they run."""

    def __init__(
        self,
        script: Any,
        query: Sequence[int],
        key: Sequence[int],
        value: Sequence[int],
        mask: Sequence[int] | None,
        tiled: Tiles,
    ) -> None:
        self.t, self.tiled = script, tiled
        self.heads, (self.queries, self.dim) = list(query[:-2]), query[-2:]
        self.keys, self.width = value[-2:]
        self.mask_shape = list(mask or ())

        def argument(name: str, shape: Sequence[int]) -> Any:
            return script.arg(name, script.buffer(list(shape), "float32"))

        self.q, self.k, self.v = map(argument, "qkv", (query, key, value))
        self.mask: Any = argument("mask", mask) if mask is not None else None
        self.out = argument("out", [*query[:-1], self.width])

    def write(self, scale: float, *, safe: bool) -> None:
        t, rows = self.t, self.tiled.rows
        blocks = -(-self.queries // rows)
        with t.sblock("root"), t.parallel(0, math.prod(self.heads) * blocks) as job:
            with t.sblock(KERNEL):
                t.reads(
                    *(_all(one) for one in (self.q, self.k, self.v, self.mask) if one is not None)
                )
                t.writes(_all(self.out))
                self._allocate()
                self.head = self._head(t.bind(job // blocks))
                # The last block begins earlier where rows are missing, and computes some twice.
                self.first = t.bind(t.min(job % blocks * rows, self.queries - rows))
                self._begin(scale, safe=safe)
                self._score()
                with t.serial(0, -(-self.keys // _PANEL)) as panel:
                    begin = t.bind(panel * _PANEL)
                    number = t.bind(t.min(t.int32(_PANEL), self.keys - begin))
                    self._exponentials(begin, number)
                    self._products(begin, number)
                with t.serial(0, rows) as r:
                    self._store(
                        self.out,
                        [*self.head, self.first + r],
                        self.width,
                        lambda d: self.results[r, d] / self.total[r],
                    )

    def _allocate(self) -> None:
        rows, tiled = self.tiled.rows, self.tiled

        def buffer(*shape: int, scope: str = "global") -> Any:
            return self.t.sblock_alloc_buffer(list(shape), "float32", scope=scope)

        self.turned = buffer(self.dim, rows)  # the queries
        self.scores = buffer(self.keys, rows)
        self.highest, self.total = buffer(rows), buffer(rows)
        self.results = buffer(rows, self.width)
        self.some_scores = buffer(tiled.keys, rows, scope="local")
        self.some_results = buffer(tiled.group, tiled.columns, scope="local")

    def _head(self, number: Any) -> list[Any]:
        """Its leading indices."""
        inner = [math.prod(self.heads[at + 1 :]) for at in range(len(self.heads))]
        return [number // n % extent for n, extent in zip(inner, self.heads, strict=True)]

    def _begin(self, scale: float, *, safe: bool) -> None:
        t, rows = self.t, self.tiled.rows
        # Of a row that sees nothing, exponentials of -inf and a sum that is not quite zero.
        lowest, least = (t.min_value("float32"), _LEAST) if safe else (t.float32(-math.inf), 0.0)
        with t.serial(0, rows) as r, t.serial(0, self.dim) as d:
            value = self.q[(*self.head, self.first + r, d)] * t.float32(scale)
            t.buffer_store(self.turned, value, [d, r])
        self._store(self.highest, [], rows, lambda _: lowest)
        self._store(self.total, [], rows, lambda _: t.float32(least))
        with t.serial(0, rows) as r:
            self._store(self.results, [r], self.width, lambda _: t.float32(0))

    def _score(self) -> None:
        """All scores of the block, and the highest of each row."""
        t, rows, keys = self.t, self.tiled.rows, self.tiled.keys
        some, highest = self.some_scores, self.highest
        with t.serial(0, -(-self.keys // keys)) as number:
            first = t.bind(t.min(number * keys, self.keys - keys))
            with t.unroll(0, keys) as j:
                self._store(some, [j], rows, lambda _: t.float32(0))
            with t.serial(0, self.dim) as d, t.unroll(0, keys) as j:
                key = self.k[(*self.head, first + j, d)]
                self._store(some, [j], rows, lambda r: some[j, r] + key * self.turned[d, r])
            with t.unroll(0, keys) as j:
                if self.mask is not None:
                    self._store(some, [j], rows, lambda r: some[j, r] + self._masked(first + j, r))
                self._store(self.scores, [first + j], rows, lambda r: some[j, r])
                self._store(highest, [], rows, lambda r: t.max(highest[r], some[j, r]))

    def _masked(self, key: Any, row: Any) -> Any:
        at = [*self.head, key, self.first + row]
        return self.mask[tuple(i if n > 1 else 0 for i, n in zip(at, self.mask_shape, strict=True))]

    def _exponentials(self, begin: Any, number: Any) -> None:
        t, rows, scores, total = self.t, self.tiled.rows, self.scores, self.total
        with t.serial(0, number) as step:
            j = begin + step
            self._store(scores, [j], rows, lambda r: t.exp(scores[j, r] - self.highest[r]))
            self._store(total, [], rows, lambda r: total[r] + scores[j, r])

    def _products(self, begin: Any, number: Any) -> None:
        """With the values of a panel, added to the results."""
        t, group, columns = self.t, self.tiled.group, self.tiled.columns
        some, results = self.some_results, self.results
        with (
            t.serial(0, self.tiled.rows // group) as which,
            t.serial(0, self.width // columns) as part,
        ):
            row, column = which * group, part * columns
            with t.unroll(0, group) as r:
                self._store(some, [r], columns, lambda d: results[row + r, column + d])
            with t.serial(0, number) as step, t.unroll(0, group) as r:
                p = self.scores[begin + step, row + r]
                at = (*self.head, begin + step)
                self._store(
                    some, [r], columns, lambda d: some[r, d] + p * self.v[(*at, column + d)]
                )
            with t.unroll(0, group) as r:
                self._store(results, [row + r], columns, lambda d: some[r, d], begin=column)

    def _store(
        self,
        buffer: Any,
        at: Sequence[Any],
        extent: int,
        value: Callable[[Any], Any],
        *,
        begin: Any = 0,
    ) -> None:
        """value(i) at [*at, begin + i], in vectors."""
        t = self.t
        lanes = self.tiled.lanes if extent == self.tiled.rows else self.tiled.wide
        with t.unroll(0, extent // lanes) as vector, t.vectorized(0, lanes) as lane:
            i = vector * lanes + lane
            t.buffer_store(buffer, value(i), [*at, begin + i])


def _all(buffer: Any) -> Any:
    return buffer[tuple(slice(0, extent) for extent in buffer.shape)]
