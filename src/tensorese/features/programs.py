"""Stores to arrays: every program once, its labels by platform, its sketch encoded once.

A program measured on several platforms is one row with several labels. A failed program has no
latency; it is marked as failed. A fault of the machinery is no label at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats32, Ints
from tensorese.errors import TensoreseError, did_you_mean
from tensorese.features.context import context_of
from tensorese.features.matrix import Context, Encoder, MatrixSpec, Template, fit_spec
from tensorese.features.physics import Machine
from tensorese.language import Skeleton, skeleton
from tensorese.records.nouns import Sketch, Status, Workload
from tensorese.records.store import Split, Store

if TYPE_CHECKING:
    from tensorese.features.lowered import Ragged

FAILED = frozenset(
    {
        *(Status.INVALID, Status.BUILD_ERROR, Status.BUILD_TIMEOUT),
        *(Status.RUN_ERROR, Status.RUN_TIMEOUT, Status.WRONG_OUTPUT),
    }
)
_COLUMNS = ["program_id", "workload_id", "sketch_id", "platform", "status", "latency", "decisions"]


class DataError(TensoreseError):
    """Records that cannot be trained or judged on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """One sketch of one workload: what a template is made from."""

    workload: str
    sketch: Sketch
    bones: Skeleton
    context: Context


@dataclass(frozen=True, kw_only=True, eq=False)
class ProgramSet:
    """Programs `[n]` with labels `[n, platforms]`; not yet encoded for any model."""

    platforms: tuple[str, ...]
    workloads: dict[str, Workload]
    pairs: tuple[Pair, ...]
    pair: Ints
    decisions: tuple[Ints, ...]
    """By pair: decisions of its programs, in the order of `members`."""
    members: tuple[Ints, ...]
    """By pair: program indices."""
    task: Ints
    """Index of the program's workload in `tasks`."""
    tasks: tuple[str, ...]
    latency: npt.NDArray[np.float64]
    failed: npt.NDArray[np.bool_]
    ids: tuple[str, ...]
    digest: str
    """Hash of program ids and labels: names the data in a model's card."""
    lowered: Ragged | None = None
    """Rows of the lowered programs, where somebody has asked for them."""

    def __len__(self) -> int:
        return len(self.pair)

    def head(self, platform: str) -> int:
        if platform not in self.platforms:
            raise DataError(
                f"the records are of {', '.join(self.platforms)}, but got platform {platform!r}"
                f"{did_you_mean(platform, self.platforms)}; name one of them"
            )
        return self.platforms.index(platform)

    def spec(self, **changes: Any) -> MatrixSpec:
        fitted = replace(fit_spec(pair.bones for pair in self.pairs), machine=self.machine)
        return replace(fitted, **changes)

    @property
    def machine(self) -> Machine:
        """The set of physical features that fits what the traces and modules show."""
        if any(pair.bones.plan.parallel for pair in self.pairs):
            return "cpu"
        known = sum(bool(pair.context.blocks) for pair in self.pairs)
        return "cuda" if known > len(self.pairs) // 2 else "gpu"

    def valid(self, platform: int) -> Ints:
        return np.flatnonzero(np.isfinite(self.latency[:, platform]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoded:
    """A program set written for one spec: templates, and values `[n, v]`."""

    templates: tuple[Template, ...]
    pair: Ints
    values: Floats32
    strangers: dict[str, int]

    def matrix(self, index: Ints) -> Floats32:
        """`[len(index), length, width]`, for models that want the matrix itself."""
        width = 1 + self.templates[0].names.shape[1] + self.templates[0].numbers.shape[1]
        out = np.zeros((len(index), len(self.templates[0].types), width), np.float32)
        for k in np.unique(self.pair[index]):
            chosen = np.flatnonzero(self.pair[index] == k)
            template = self.templates[k]
            shift = 1 + template.names.shape[1]
            out[chosen, :, 0] = template.types
            out[chosen, :, 1:shift] = template.names
            out[chosen, :, shift:] = template.numbers
            row, column, value = template.cells.T
            out[chosen[:, None], row, shift + column] = self.values[index[chosen][:, None], value]
        return out

    def flat(self, index: Ints) -> Floats32:
        """`[len(index), columns]`: the matrix laid flat and what stands beside it, for trees."""
        beside = self.values[index][:, : self.templates[0].n_physics]
        return np.concatenate([self.matrix(index).reshape(len(index), -1), beside], axis=1)


def read_programs(
    stores: Sequence[Store], *, platforms: Sequence[str] = (), split: Split = "train"
) -> ProgramSet:
    """Everything the stores hold on these platforms (all of them when none is named)."""
    known = sorted(set().union(*(store.platforms() for store in stores)) if stores else set())
    for name in platforms:
        if name not in known:
            raise DataError(
                f"the stores hold {', '.join(known) or 'no platform'}, but got platform {name!r}"
                f"{did_you_mean(name, known)}; name one of them"
            )
    wanted = tuple(platforms) or tuple(known)
    columns = _gather(stores, wanted, split)
    if not len(columns["program_id"]):
        where = ", ".join(str(store.path) for store in stores) or "no store"
        raise DataError(f"training needs records, but {where} holds none; import some first")
    return _assemble(stores, wanted, columns)


def _gather(stores: Sequence[Store], platforms: Sequence[str], split: Split) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    tables = [store.table(_COLUMNS, split=split).select(_COLUMNS) for store in stores]
    table = pa.concat_tables(tables)
    table = table.filter(
        pc.is_in(table["platform"], value_set=pa.array(list(platforms), pa.string()))
    )
    # Parts of a store have random names: by content, so that the same records train the same model.
    order = [(name, "ascending") for name in ("program_id", "platform", "status", "latency")]
    table = table.combine_chunks().sort_by(order)
    columns: dict[str, Any] = {}
    for name in _COLUMNS[:-2]:
        coded = table[name].combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks() if coded.num_chunks else pa.array([], pa.string())
        words = np.array(coded.dictionary.to_pylist() if len(coded) else [], dtype=object)
        columns[name] = coded.indices.to_numpy(zero_copy_only=False) if len(coded) else []
        columns[f"{name}:words"] = words
    columns["latency"] = table["latency"].to_numpy().astype(np.float64)
    lists = table["decisions"]
    columns["lengths"] = pc.list_value_length(lists).to_numpy()
    columns["flat"] = pc.list_flatten(lists).to_numpy()
    return columns


def _assemble(
    stores: Sequence[Store], platforms: tuple[str, ...], columns: dict[str, Any]
) -> ProgramSet:
    program = columns["program_id"]
    n = len(columns["program_id:words"])
    first = np.zeros(n, dtype=np.int64)
    first[program[::-1]] = np.arange(len(program))[::-1]
    latency, failed = _labels(columns, platforms, n)
    workloads = {k: v for store in stores for k, v in store.workloads().items()}
    sketches = {k: v for store in stores for k, v in store.sketches().items()}
    w, s = columns["workload_id"][first], columns["sketch_id"][first]
    keys, pair = np.unique(w.astype(np.int64) * (1 << 31) + s, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(columns["lengths"])])
    pairs, members, decisions = [], [], []
    bones: dict[str, Skeleton] = {}
    for k, key in enumerate(keys):
        workload_id = columns["workload_id:words"][key >> 31]
        sketch = sketches[columns["sketch_id:words"][key & ((1 << 31) - 1)]]
        if sketch.id not in bones:
            bones[sketch.id] = skeleton(sketch.dialect, sketch.body, sketch.slots)
        chosen = np.flatnonzero(pair == k)
        at = starts[first[chosen]][:, None] + np.arange(sketch.n_decisions)
        members.append(chosen)
        decisions.append(columns["flat"][at].astype(np.int64))
        pairs.append(
            Pair(
                workload=workload_id,
                sketch=sketch,
                bones=bones[sketch.id],
                context=context_of(workloads[workload_id]),
            )
        )
    tasks, task = np.unique(w, return_inverse=True)
    names = tuple(columns["workload_id:words"][tasks])
    return ProgramSet(
        platforms=platforms,
        workloads={name: workloads[name] for name in names},
        pairs=tuple(pairs),
        pair=pair.astype(np.int64),
        decisions=tuple(decisions),
        members=tuple(members),
        task=task.astype(np.int64),
        tasks=names,
        latency=latency,
        failed=failed,
        ids=tuple(columns["program_id:words"]),
        digest=_digest(columns["program_id:words"], latency, failed),
    )


def _labels(
    columns: dict[str, Any], platforms: tuple[str, ...], n: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Mean latency of the valid runs; failed where every run failed."""
    place = {name: k for k, name in enumerate(platforms)}
    head = np.array([place[p] for p in columns["platform:words"]])[columns["platform"]]
    status = columns["status:words"]
    ok = (status == Status.OK.value)[columns["status"]] & np.isfinite(columns["latency"])
    bad = np.isin(status, [s.value for s in FAILED])[columns["status"]]
    total = np.zeros((n, len(platforms)))
    count = np.zeros((n, len(platforms)))
    failures = np.zeros((n, len(platforms)))
    np.add.at(total, (columns["program_id"][ok], head[ok]), columns["latency"][ok])
    np.add.at(count, (columns["program_id"][ok], head[ok]), 1.0)
    np.add.at(failures, (columns["program_id"][bad], head[bad]), 1.0)
    with np.errstate(invalid="ignore"):
        latency = np.where(count > 0, total / count, np.nan)
    return latency, (failures > 0) & (count == 0)


def _digest(ids: Any, latency: Any, failed: Any) -> str:
    order = np.argsort(ids.astype(str))
    text = "".join(ids[order]).encode() + latency[order].tobytes() + failed[order].tobytes()
    return hashlib.sha256(text).hexdigest()[:16]


def encode_programs(programs: ProgramSet, encoder: Encoder) -> Encoded:
    before = dict(encoder.vocabulary.strangers)
    templates = tuple(encoder.encode(pair.bones, pair.context) for pair in programs.pairs)
    n_values = max(t.n_values for t in templates)
    values = np.zeros((len(programs), max(n_values, 1)), dtype=np.float32)
    for template, members, decisions in zip(
        templates, programs.members, programs.decisions, strict=True
    ):
        filled = template.values(decisions)
        values[members, : filled.shape[1]] = filled
    strangers = encoder.vocabulary.strangers
    fresh = {k: n - before.get(k, 0) for k, n in strangers.items() if n > before.get(k, 0)}
    return Encoded(templates=templates, pair=programs.pair, values=values, strangers=fresh)
