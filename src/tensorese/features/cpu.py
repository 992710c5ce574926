"""What a plan means for a CPU: lanes, registers, caches, chunks for the cores, code size.

A CPU's tiles run S0 S1 R0 S2 R1 S3 from outside in: S0 and S1 are dealt to the cores, S3 is the
register tile whose last axis is the vector. Everything follows from the decisions and from what
the module's blocks read and write, by arithmetic over all programs at once; nothing is lowered.
The machine is generic (16 lanes, 32 registers, caches of 32 KiB and 1 MiB): thresholds of a real
one are for the model to learn. Shape legend: n programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats64
from tensorese.features import cpu_code
from tensorese.features.cpu_code import LANES, OPERANDS, REGISTERS, pieces
from tensorese.features.cpu_traffic import TrafficLoop, bytes_of, clashes, pages, traffic
from tensorese.features.recompute import repeated
from tensorese.features.scale import SHARE, log2
from tensorese.language.accesses import Block, Operand, box, coefficient, iterators, touched
from tensorese.language.plan import Plan

Put: TypeAlias = Callable[[str, Any], None]

CACHES = {"registers": 2048.0, "l1": 32768.0, "l2": 1048576.0, "l3": 16777216.0}
JOBS_PER_CORE = 16
CORES = (1, 2, 16)
"""Core counts that features assume: a program is the same on every platform."""
N_LOCATIONS, N_FACTORED = 5, 2
N_SPATIAL, N_REDUCED = 4, 3
"""Axes whose tiles have features of their own, the last axis first."""
# Bands from inside out: (name, number of parts of the tile, which part).
BANDS = (("s3", 4, 3), ("r1", 2, 1), ("s2", 4, 2), ("r0", 2, 0), ("s1", 4, 1), ("s0", 4, 0))
LEVELS = (1, 2, 3, 4, 5)
"""Footprints inside so many bands."""

NAMES: tuple[str, ...] = (
    *("tiled", "unroll", "no_unroll", "attached", "cached"),
    *(
        f"{name}_{k}"
        for k in range(N_FACTORED)
        for name in ("factored", "factor_outer", "factor_inner", "factors_inner")
    ),
    *(f"{name}_{k}" for k in range(N_LOCATIONS) for name in ("inlined", "at_root", "depth")),
    *(f"repeated_{k}" for k in range(N_LOCATIONS)),
    "repeated",
    *(name for name, _, _ in BANDS),
    *(f"axis{k}_{part}" for k in range(N_SPATIAL) for part in ("s0", "s1", "s2", "s3")),
    *(f"reduced{k}_{part}" for k in range(N_REDUCED) for part in ("r0", "r1")),
    *("iterations", "reduction", "lanes", "lanes_filled", "vectors", "scalar"),
    *("pieces", "pieces_filled"),
    *("accumulators", "spilled", "loads", "per_load", "held"),
    *("unroll_s3", "unroll_r1", "unroll_s2", "unrolled"),
    *(f"{name}_{level}" for name in OPERANDS for level in LEVELS),
    *(f"set_{level}" for level in LEVELS),
    *(f"{name}_{what}" for name in CACHES for what in ("moved", "level", *OPERANDS)),
    *(f"{name}_{what}" for name in OPERANDS for what in ("run", "strided", "waste")),
    *(f"{name}_{what}" for name in OPERANDS for what in ("pages", "clashes")),
    *(f"{name}_{cores}" for cores in CORES for name in ("chunks", "balance", "busy")),
    "chunk_work",
    *("recomputed", "located_bytes", "located_trips", "located_run", "located_rows"),
    *("ending_run", "ending_bytes", "ending_trips"),
    *("minor_s2", "minor_s1", "minor_whole", "store_run"),
    "located_share",
    *cpu_code.NAMES,
)
N_FEATURES = len(NAMES)
_COLUMN = {name: k for k, name in enumerate(NAMES)}


@dataclass(frozen=True, kw_only=True)
class CpuPhysics:
    """The features of one sketch's programs."""

    plan: Plan
    blocks: tuple[Block, ...] = ()

    @property
    def n_features(self) -> int:
        return N_FEATURES

    def features(self, values: Floats64) -> npt.NDArray[np.float32]:
        """`[n, N_FEATURES]` from decided values `[n, d]`; 0 where the sketch has no such thing."""
        out = np.zeros((len(values), N_FEATURES), dtype=np.float32)

        def put(name: str, column: Any) -> None:
            out[:, _COLUMN[name]] = column

        self._general(values, put)
        if self.plan.tiles and self.plan.order and len(values):
            _Nest(self.plan, self.block, values).describe(self._producer, put)
        return out

    @cached_property
    def block(self) -> Block | None:
        named = [block for block in self.blocks if block.name == self.plan.block]
        return named[0] if named else None

    def _producer(self, name: str) -> Operand | None:
        """What the tiled block reads of a block that moves."""
        written = {
            operand.buffer
            for block in self.blocks
            if block.name == name
            for operand in block.writes
        }
        reads = self.block.reads if self.block else ()
        return next((read for read in reads if read.buffer in written), None)

    def _general(self, values: Floats64, put: Put) -> None:
        plan = self.plan
        put("attached", SHARE * (1 + plan.attached) / max(1, len(plan.order)))
        put("cached", SHARE * plan.cached)
        if plan.unroll is not None:
            put("unroll", log2(values[:, plan.unroll] + 1))
            put("no_unroll", SHARE * (values[:, plan.unroll] == 0))
        for k, cut in enumerate(plan.factored[:N_FACTORED]):
            put(f"factored_{k}", SHARE)
            put(f"factor_outer_{k}", log2(values[:, cut.parts[0]]))
            put(f"factor_inner_{k}", log2(values[:, cut.parts[-1]]))
            put(f"factors_inner_{k}", SHARE * cut.inner)
        for k, located in enumerate(plan.locations[:N_LOCATIONS]):
            at = values[:, located.decision]
            put(f"inlined_{k}", SHARE * (at == -2))
            put(f"at_root_{k}", SHARE * (at == -1))
            put(f"depth_{k}", log2(np.maximum(at, -1) + 2))
        if plan.locations and not plan.tiles and self.blocks and len(values):
            self._repeated(values, put)

    def _repeated(self, values: Floats64, put: Put) -> None:
        """Work that is done again because of where it is done; tiled blocks have their own."""
        located = self.plan.locations
        rows = values[:, [one.decision for one in located]]
        names = [one.block for one in located]
        work = log2(repeated(self.blocks, self.plan.inlined, names, rows))
        for k in range(min(N_LOCATIONS, len(located))):
            put(f"repeated_{k}", work[:, k])
        put("repeated", work[:, -1])


class _Nest:
    """The tiled block's loops with the programs' lengths."""

    def __init__(self, plan: Plan, block: Block | None, values: Floats64) -> None:
        self.plan, self.block, self.values = plan, block, values
        self.n = len(values)
        self.part: dict[tuple[int, int], Floats64] = {}
        self.depth: dict[int, int] = {}
        for tile in plan.tiles:
            self.depth[tile.loop] = len(tile.parts)
            for k, decision in enumerate(tile.parts):
                self.part[tile.loop, k] = np.maximum(values[:, decision], 1.0)
        self.axes = max(
            len(block.extents) if block else 0, 1 + max(tile.loop for tile in plan.tiles)
        )
        self.minor = plan.order[-1][0]

    def describe(self, producer: Callable[[str], Operand | None], put: Put) -> None:
        bands = [self._band(depth, part) for _, depth, part in BANDS]
        for (name, _, _), product in zip(BANDS, bands, strict=True):
            put(name, log2(product))
        s3, r1, s2, r0, _, _ = bands
        iterations = np.prod(bands, axis=0)
        put("tiled", SHARE)
        put("iterations", log2(iterations))
        put("reduction", log2(r0 * r1))
        self._axes(put)
        lanes = self.part.get(self.plan.order[-1], np.ones(self.n))
        self._vectors(lanes, put)
        self._unrolled(s3 / lanes, r1, s2, put)
        boxes = [self._lengths(level) for level in range(len(BANDS) + 1)]
        operands = self._operands()
        self._registers(operands, boxes[1], lanes, s3, r1, put)
        self._memory(operands, boxes, iterations, put)
        self._core(operands, lanes, put)
        self._chunks(iterations, put)
        self._location(producer, iterations, put)
        self._ending(operands, put)

    def _band(self, depth: int, part: int) -> Floats64:
        mine = [p for (loop, k), p in self.part.items() if k == part and self.depth[loop] == depth]
        return np.asarray(np.prod(mine, axis=0)) if mine else np.ones(self.n)

    def _axes(self, put: Put) -> None:
        """The tiles of each axis: bands are their products, which hide who has what."""
        for kind, depth, most, letter in (
            ("axis", 4, N_SPATIAL, "s"),
            ("reduced", 2, N_REDUCED, "r"),
        ):
            loops = sorted(loop for loop, parts in self.depth.items() if parts == depth)
            for k, loop in enumerate(reversed(loops[-most:])):
                for part in range(depth):
                    put(f"{kind}{k}_{letter}{part}", log2(self.part[loop, part]))

    def _lengths(self, level: int) -> Floats64:
        """`[n, axes]`: iterations of each axis inside the `level` innermost bands."""
        inside = {(depth, part) for _, depth, part in BANDS[:level]}
        lengths = np.ones((self.n, self.axes))
        for (loop, k), length in self.part.items():
            if (self.depth[loop], k) in inside:
                lengths[:, loop] *= length
        return lengths

    def _vectors(self, lanes: Floats64, put: Put) -> None:
        vectors = np.ceil(lanes / LANES)
        put("lanes", log2(lanes))
        put("lanes_filled", SHARE * lanes / (vectors * LANES))
        put("vectors", log2(vectors))
        put("scalar", SHARE * (lanes == 1))
        put("pieces", log2(pieces(lanes)))
        put("pieces_filled", SHARE * lanes / (pieces(lanes) * LANES))
        for name, part in (("minor_s2", 2), ("minor_s1", 1)):
            put(name, log2(self.part.get((self.minor, part), np.ones(self.n))))
        outer = self.part.get((self.minor, 0), np.ones(self.n))
        put("minor_whole", SHARE * (outer == 1))

    def _unrolled(self, body: Floats64, r1: Floats64, s2: Floats64, put: Put) -> None:
        """How the unroll limit compares with the steps inside each loop; a vector is one step."""
        if self.plan.unroll is None:
            return
        limit = np.maximum(self.values[:, self.plan.unroll], 0.25)
        unrolled = np.ones(self.n)
        for name, steps in (("s3", body), ("r1", body * r1), ("s2", body * r1 * s2)):
            put(f"unroll_{name}", np.clip(log2(limit) - log2(steps), -8, 8))
            unrolled = np.where(steps <= limit, steps, unrolled)
        put("unrolled", log2(unrolled))

    def _operands(self) -> list[Operand]:
        """What is written, then the two largest reads, weights last."""
        if self.block is None or not self.block.writes:
            return []
        out = self.block.writes[0]
        reads = [read for read in self.block.reads if read.buffer != out.buffer]
        reads = sorted(reads, key=lambda read: -float(np.prod(read.shape, dtype=np.float64)))[:2]
        return [out, *sorted(reads, key=lambda read: read.free)]

    def _registers(
        self,
        operands: Sequence[Operand],
        inner: Floats64,
        lanes: Floats64,
        s3: Floats64,
        r1: Floats64,
        put: Put,
    ) -> None:
        vectors = np.ceil(lanes / LANES)
        accumulators = s3 / lanes * vectors
        put("accumulators", log2(accumulators))
        put("spilled", np.clip(log2(accumulators / (REGISTERS - 4)), -4, 6))
        put("held", log2(accumulators * r1))
        loads = np.zeros(self.n)
        for operand in operands[1:]:
            elements = touched(operand, inner).prod(1)
            along = any(self.minor in iterators(index) for index in operand.indices)
            loads = loads + (elements / lanes * vectors if along else elements)
        if len(operands) > 1:
            put("loads", log2(loads))
            put("per_load", log2(accumulators / np.maximum(loads, 1e-3)))

    def _core(self, operands: Sequence[Operand], lanes: Floats64, put: Put) -> None:
        if not operands:
            return
        one, loops = np.ones(self.n), []
        for axis, part in reversed(self.plan.order[:-1]):
            depth = self.depth.get(axis, 0)
            inner = [self.part[axis, k] for k in range(part + 1, depth)]
            apart = np.asarray(np.prod(inner, axis=0)) if inner else one
            loops.append(
                cpu_code.CodeLoop(axis, self.part.get((axis, part), one), apart, depth == 2)
            )
        vector = np.ones((self.n, self.axes))
        vector[:, self.minor] = lanes
        limit = np.zeros(self.n)
        if self.plan.unroll is not None:
            limit = self.values[:, self.plan.unroll]
        core = cpu_code.find_core(loops, vector, limit)
        for name, column in cpu_code.code(operands, core, lanes, self.minor):
            put(name, column)

    def _memory(
        self, operands: Sequence[Operand], boxes: Sequence[Floats64], total: Floats64, put: Put
    ) -> None:
        """Bytes each operand needs inside each band, and what each cache then has to fetch."""
        if not operands:
            return
        sets = [np.zeros(self.n) for _ in boxes]
        for name, operand in zip(OPERANDS, operands, strict=False):
            for level, lengths in enumerate(boxes):
                needed = bytes_of(operand, touched(operand, lengths))
                sets[level] = sets[level] + needed
                if level in LEVELS:
                    put(f"{name}_{level}", log2(needed) - 2)
            self._shape(name, operand, boxes[3], put)
        for level in LEVELS:
            put(f"set_{level}", log2(sets[level]) - 10)
        for name, size in CACHES.items():
            fitting = [sets[k] <= size for k in range(1, len(boxes))]
            put(f"{name}_level", np.sum(fitting, axis=0))
        self._traffic(operands, total, put)

    def _traffic(self, operands: Sequence[Operand], total: Floats64, put: Put) -> None:
        one = np.ones(self.n)
        loops = [TrafficLoop(key[0], self.part.get(key, one)) for key in reversed(self.plan.order)]
        moved = traffic(operands, loops, self.axes, list(CACHES.values()))
        for cache, by_operand in zip(CACHES, moved, strict=True):
            put(f"{cache}_moved", log2(by_operand.sum(0) / total) + 4)
            for name, mine in zip(OPERANDS, by_operand, strict=False):
                put(f"{cache}_{name}", log2(mine / total) + 4)

    def _shape(self, name: str, operand: Operand, lengths: Floats64, put: Put) -> None:
        cells = touched(operand, lengths)
        run = cells.prod(1) if operand.free else cells[:, -1]
        put(f"{name}_run", log2(run))
        put(f"{name}_waste", log2(bytes_of(operand, cells) / (cells.prod(1) * operand.element)))
        put(f"{name}_pages", log2(pages(operand, cells)))
        put(f"{name}_clashes", log2(clashes(operand, cells)))
        put(f"{name}_strided", SHARE * self._stride(operand) / 2)
        if name == "out":
            put("store_run", log2(box(operand, self._lengths(1))[:, -1]))

    def _stride(self, operand: Operand) -> float:
        """Of the vector's elements: 0 one value for all, 1 neighbours, 2 apart."""
        used = [self.minor in iterators(index) for index in operand.indices]
        if not any(used):
            return 0.0
        if operand.free:
            return 1.0
        neighbours = coefficient(operand.indices[-1], self.minor) == 1.0
        return 1.0 if neighbours and not any(used[:-1]) else 2.0

    def _chunks(self, total: Floats64, put: Put) -> None:
        """Outer loops are joined until they give enough jobs or something else happens inside."""
        if not self.plan.parallel:
            return
        last = len(self.plan.order) if self.plan.attached < 0 else self.plan.attached
        stop = np.full(self.n, float(last))
        for located in self.plan.locations:
            at = self.values[:, located.decision]
            stop = np.where(at >= 0, np.minimum(stop, at), stop)
        for cores in CORES:
            chunks, going = np.ones(self.n), np.ones(self.n, dtype=bool)
            for place, (loop, part) in enumerate(self.plan.order):
                if self.depth.get(loop, 0) <= 2:
                    break
                chunks = np.where(going, chunks * self.part[loop, part], chunks)
                going = going & (chunks <= JOBS_PER_CORE * cores) & (place < stop)
            put(f"chunks_{cores}", log2(chunks))
            put(f"balance_{cores}", SHARE * chunks / (np.ceil(chunks / cores) * cores))
            put(f"busy_{cores}", np.clip(log2(chunks / cores), -6, 3))
        put("chunk_work", log2(total / chunks))

    def _location(
        self, producer: Callable[[str], Operand | None], total: Floats64, put: Put
    ) -> None:
        """Work and memory of the first producer that is computed inside the nest."""
        for located in self.plan.locations:
            operand = producer(located.block)
            if operand is None:
                continue
            at = self.values[:, located.decision]
            inside, trips = self._below(at)
            cells = box(operand, inside)
            elements = cells.prod(1)
            whole = float(np.prod(operand.shape, dtype=np.float64))
            moved = at >= 0
            put("recomputed", np.where(moved, log2(elements * trips / whole), 0.0))
            put("located_bytes", np.where(moved, log2(elements * operand.element) - 8, 0.0))
            put("located_trips", np.where(moved, log2(trips), 0.0))
            # Copied in vectors of whole runs: a run of one element is a copy by elements.
            put("located_run", np.where(moved, log2(cells[:, -1]), 0.0))
            put("located_rows", np.where(moved, log2(elements / cells[:, -1]), 0.0))
            copies = np.where(moved, elements * trips, np.where(at == -1, whole, 0.0)) / total
            put("located_share", log2(copies) + 10)
            return

    def _below(self, at: Floats64) -> tuple[Floats64, Floats64]:
        """Iterations of each axis in the loops deeper than one, `[n, axes]`, and its trips."""
        inside, trips = np.ones((self.n, self.axes)), np.ones(self.n)
        for place, key in enumerate(self.plan.order):
            length = self.part.get(key, np.ones(self.n))
            inside[:, key[0]] *= np.where(place > at, length, 1.0)
            trips = trips * np.where(place > at, 1.0, length)
        return inside, trips

    def _ending(self, operands: Sequence[Operand], put: Put) -> None:
        """What is finished at a time by what follows the block, where that is inside the nest."""
        if self.plan.attached < 0 or not operands:
            return
        inside, trips = self._below(np.full(self.n, float(self.plan.attached)))
        cells = box(operands[0], inside)
        put("ending_run", log2(cells[:, -1]))
        put("ending_bytes", log2(cells.prod(1) * operands[0].element) - 8)
        put("ending_trips", log2(trips))
