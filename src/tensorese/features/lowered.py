"""Features of the lowered program: TVM's own vector a buffer store, and a coarse one a program.

The rows are MetaSchedule's `PerStoreFeature`, which its cost models and those of TenSet's line
learn from. They need the program scheduled and postprocessed for its target, which takes TVM
milliseconds: `measure.lowering` has build workers do it, and their results stay in a cache
beside the store, by program and version. The coarse vector adds what the rows lack: the kind of
operator, its sizes, and the platform; it is read from structure, as names of blocks vary.
"""

from __future__ import annotations

import hashlib
import math
import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats32
from tensorese.errors import StoreError
from tensorese.features.programs import ProgramSet
from tensorese.language.accesses import Block, blocks_of, is_opaque, iterators
from tensorese.records.nouns import Workload
from tensorese.targets import Target

BUFFERS, SAMPLES, LINE_BYTES = 5, 10, 64
COLUMNS = 57 + 18 * BUFFERS + SAMPLES + 4 + 3
"""Of a store's row: what it computes and its loops, buffers, intensity, allocation, outer loops."""
CLASSES = ("matmul", "batch_matmul", "conv", "depthwise", "reduction", "gather", "elementwise")
_SIZES = ("blocks", "iterations", "reduced", "arguments", "largest argument", "smallest argument")
_PLATFORM = (
    "gpu",
    "num-cores",
    "thread_warp_size",
    "max_threads_per_block",
    "max_shared_memory_per_block",
    "registers_per_block",
)
COARSE = (*CLASSES, *_SIZES, *_PLATFORM)
_DEFINITION = ("PerStoreFeature", "tvm 0.27", BUFFERS, SAMPLES, LINE_BYTES, COLUMNS, COARSE, 1)
VERSION = hashlib.sha256(repr(_DEFINITION).encode()).hexdigest()[:8]
"""8 hex digits; the last number of the definition is counted up when a column's meaning changes."""


class LowerStatus(StrEnum):
    """How lowering a program ended. Only `OK` has rows."""

    OK = "ok"
    NO_ROWS = "no_rows"  # it stores constants alone
    INVALID = "invalid"  # it cannot be scheduled, or not on this target
    LOWER_ERROR = "lower_error"  # TVM gives no features of it, or died of it
    TIMEOUT = "timeout"
    INFRA_ERROR = "infra_error"  # the machinery's fault: never kept, tried again


class Lowered(NamedTuple):
    status: LowerStatus
    rows: Floats32  # [stores, COLUMNS]
    error: str = ""


def no_rows(status: LowerStatus, error: str = "") -> Lowered:
    return Lowered(status, np.zeros((0, COLUMNS), np.float32), error)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ragged:
    """Rows of programs laid end to end."""

    values: Floats32  # [rows of all programs, columns]
    counts: npt.NDArray[np.int64]  # [n] rows of each; 0 where a program has none
    coarse: Floats32  # [n, coarse columns]

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def owner(self) -> npt.NDArray[np.int64]:
        """Whose each row is."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def take(self, index: npt.NDArray[np.int64]) -> Ragged:
        """These programs, in this order."""
        starts = np.cumsum(self.counts) - self.counts
        counts = self.counts[index]
        first = np.repeat(starts[index] - (np.cumsum(counts) - counts), counts)
        rows = first + np.arange(counts.sum())
        return Ragged(values=self.values[rows], counts=counts, coarse=self.coarse[index])


def pack(each: Sequence[Lowered], coarse: Floats32) -> Ragged:
    values = [one.rows for one in each] or [np.zeros((0, COLUMNS), np.float32)]
    counts = np.array([len(one.rows) for one in each], dtype=np.int64)
    return Ragged(values=np.concatenate(values), counts=counts, coarse=coarse)


# -- rows: inside a worker, where TVM is ---------------------------------------------------------


@lru_cache(maxsize=1)
def _per_store() -> Any:
    from tensorese.tvm_env import import_tvm

    tvm = import_tvm()
    return tvm.s_tir.meta_schedule.feature_extractor.PerStoreFeature(
        buffers_per_store=BUFFERS,
        arith_intensity_curve_num_samples=SAMPLES,
        cache_line_bytes=LINE_BYTES,
        extract_workload=False,
    )


def store_rows(context: Any, schedule: Any) -> Floats32:
    """`[stores, COLUMNS]` of a postprocessed schedule; `context` is of its workload and target."""
    from tensorese.tvm_env import import_tvm

    tvm = import_tvm()
    candidate = tvm.s_tir.meta_schedule.MeasureCandidate(schedule, [])
    (array,) = _per_store().extract_from(context, [candidate])
    rows: Floats32 = array.numpy().astype(np.float32)
    return rows.reshape(-1, COLUMNS)


# -- the coarse vector ---------------------------------------------------------------------------


def coarse_row(workload: Workload, target: Target) -> Floats32:
    """`[len(COARSE)]`: how many blocks of each class, sizes and the target's numbers, in log2."""
    blocks = blocks_of(workload.module)
    classes = [class_of(block) for block in blocks]
    volumes = [math.prod(block.extents) for block in blocks]
    reduced = [
        math.prod(n for n, reduces in zip(block.extents, block.reduces, strict=True) if reduces)
        for block in blocks
    ]
    arguments = [math.prod(arg.shape) for arg in workload.args]
    sizes = (
        len(blocks),
        sum(volumes),
        max(reduced, default=0),
        sum(arguments),
        max(arguments, default=0),
        min(arguments, default=0),
    )
    spec = target.to_dict()
    platform = (not target.is_cpu, *(spec.get(name, 0) for name in _PLATFORM[1:]))
    counts = [classes.count(name) for name in CLASSES]
    return np.log2(1.0 + np.array([*counts, *sizes, *platform], dtype=np.float64)).astype(
        np.float32
    )


def class_of(block: Block) -> str:
    written = {write.buffer for write in block.writes}
    reads = [read for read in block.reads if read.buffer not in written]
    places = [[iterators(index) for index in read.indices] for read in reads]
    loops = [k for k, extent in enumerate(block.extents) if extent > 1]
    reducing = {k for k in loops if block.reduces[k]}
    if not any(block.reduces):
        opaque = any(is_opaque(index) for read in reads for index in read.indices)
        return "gather" if opaque else "elementwise"
    if len(reads) < 2:
        return "reduction"
    window = any(
        place & reducing and (place - reducing).intersection(loops)
        for operand in places
        for place in operand
    )
    used = [frozenset().union(*operand) for operand in places]
    shared = frozenset.intersection(*used) - reducing
    batched = any(k in shared for k in loops)
    if window:
        return "depthwise" if batched else "conv"
    return "batch_matmul" if batched else "matmul"


# -- the cache -----------------------------------------------------------------------------------


class LoweredCache:
    """What is known of lowered programs on one target, in a folder of Parquet parts.

    A part is written aside and renamed, so that a reader or a killed writer never sees half of
    one; several processes may write at once, each its own parts.
    """

    def __init__(self, folder: str | os.PathLike[str], target: Target) -> None:
        self.target = target
        self.folder = self._place(folder, target)
        self._known: dict[str, Lowered] = {}
        self._fresh: dict[str, Lowered] = {}
        for path in sorted(self.folder.glob("*.parquet")):
            self._known.update(_read_part(path))

    @staticmethod
    def _place(folder: str | os.PathLike[str], target: Target) -> Path:
        name = hashlib.sha256(target.to_json().encode()).hexdigest()[:8]
        return Path(folder) / f"features-lowered-{VERSION}-{name}"

    @classmethod
    def size_of(cls, folder: str | os.PathLike[str], target: Target) -> int:
        """Bytes that are known, without reading them."""
        return sum(path.stat().st_size for path in cls._place(folder, target).glob("*.parquet"))

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, program_id: object) -> bool:
        return program_id in self._known

    def __getitem__(self, program_id: str) -> Lowered:
        return self._known[program_id]

    def add(self, program_id: str, lowered: Lowered) -> None:
        """Written at the next `flush`; a fault of the machinery never is."""
        self._known[program_id] = lowered
        if lowered.status is not LowerStatus.INFRA_ERROR:
            self._fresh[program_id] = lowered

    def absorb(self, other: LoweredCache) -> None:
        """Knows what the other does, without writing it."""
        self._known = other._known | self._known

    @property
    def n_unwritten(self) -> int:
        return len(self._fresh)

    def flush(self) -> None:
        if self._fresh:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                _write_part(self.folder / f"{uuid.uuid4().hex}.parquet", self._fresh)
            except OSError as error:
                raise StoreError(
                    f"lowered programs are kept beside their records, but {self.folder} cannot be "
                    f"written ({error.strerror}); copy the store to where you may write"
                ) from error
            self._fresh = {}

    def statuses(self, program_ids: Iterable[str]) -> list[LowerStatus]:
        return [self._known[name].status for name in program_ids]

    def ragged(self, program_ids: Sequence[str], workloads: Sequence[Workload]) -> Ragged:
        """Of programs and their workloads; one that has no rows, or is unknown, has none here."""
        unknown = no_rows(LowerStatus.INFRA_ERROR)
        each = [self._known.get(name, unknown) for name in program_ids]
        return pack(each, _coarse_rows(workloads, self.target))

    def of_programs(self, programs: ProgramSet) -> Ragged:
        workloads = [programs.workloads[programs.tasks[task]] for task in programs.task]
        return self.ragged(programs.ids, workloads)


def _coarse_rows(workloads: Sequence[Workload], target: Target) -> Floats32:
    rows: dict[str, Floats32] = {}
    for workload in workloads:
        if workload.id not in rows:
            rows[workload.id] = coarse_row(workload, target)
    out = np.zeros((len(workloads), len(COARSE)), np.float32)
    for k, workload in enumerate(workloads):
        out[k] = rows[workload.id]
    return out


def _write_part(path: Path, lowered: dict[str, Lowered]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    each = list(lowered.values())
    values = np.concatenate([one.rows.reshape(-1) for one in each])
    ends = np.cumsum([0, *(one.rows.size for one in each)])
    table = pa.table(
        {
            "program_id": list(lowered),
            "status": [one.status.value for one in each],
            "error": [one.error for one in each],
            "values": pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), pa.array(values)),
        }
    )
    scratch = path.with_suffix(".tmp")
    try:
        pq.write_table(table, scratch, compression="zstd")
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def _read_part(path: Path) -> dict[str, Lowered]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path).combine_chunks()
        lists = table["values"].combine_chunks()
        flat = lists.flatten().to_numpy(zero_copy_only=False)
        sizes = lists.value_lengths().to_numpy(zero_copy_only=False)
        rows = [part.reshape(-1, COLUMNS) for part in np.split(flat, np.cumsum(sizes)[:-1])]
        statuses = [LowerStatus(word) for word in table["status"].to_pylist()]
        names, errors = table["program_id"].to_pylist(), table["error"].to_pylist()
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise StoreError(
            f"a part of the cache of lowered programs must be readable, but {path} is not; "
            "remove it, what it held is computed again"
        ) from error
    fields = zip(names, statuses, rows, errors, strict=True)
    return {name: Lowered(status, each, text) for name, status, each, text in fields}
