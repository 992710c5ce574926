"""Programs as matrices: one row a primitive, columns `type | names | numbers`.

In one sketch most cells never change. A `Template` holds them encoded; decisions `[n, d]` fill
the rest, so 10,000 programs of a sketch cost one scatter. Numbers are on a signed log2 scale;
the first number column is the extent a primitive implies (see `extents`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats32, Ints
from tensorese.features.physics import MACHINES, Machine, Meaning, feature_names, meaning_of
from tensorese.features.tiling import read_tiling
from tensorese.language.accesses import Block
from tensorese.language.extents import LogExtent
from tensorese.language.skeleton import Hole, Row, Skeleton, Slots, Table, skeleton
from tensorese.language.vocabulary import WORKLOAD_TYPE, Vocabulary


class Context(NamedTuple):
    """A task's own facts: element types, sizes in one row, argument shapes."""

    dtypes: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    blocks: tuple[Block, ...] = ()
    """What the task's module reads and writes, where it is known."""


PAPER_TYPES = {
    # The published order of the one-hot columns; CPU and GPU differ.
    "cpu": ("CI", "RE", "AN", "RF", "CHW", "SP", "CR", "CA", "FU", "FSP", "PR"),
    "gpu": ("AN", "CHR", "CHW", "CI", "CA", "FFSP", "SP", "FU", "RE", "PR", "FSP"),
}
LANES = 32
MOST = 4096
"""Rows, and columns, of a matrix."""
PAPER_SIZES = {"cpu": (25, 22), "gpu": (40, 20)}


@dataclass(frozen=True, kw_only=True)
class MatrixSpec:
    """The sizes of a matrix and how its cells are written; part of every trained model."""

    length: int = 64
    names: int = 2
    numbers: int = 32
    log: bool = True
    """Numbers on a signed log2 scale; raw as published otherwise."""
    implied: bool = True
    """First number column: the extent the primitive implies."""
    fill: bool = True
    """Second number column: how full the implied extent leaves its last group of 32 lanes."""
    context: bool = True
    """First row: the task's element types and sizes."""
    physics: bool = True
    """Values before the cells: what the tiling means for a machine (see `machines`)."""
    machine: Machine = "gpu"
    """Which of the sets of physical features; the first models have this one."""
    recorded: bool = False
    """Also extents that were true of a program's ancestor only, as published."""
    inline_names: bool = False
    """Names as token numbers among the numbers, in record order, as published."""

    def __post_init__(self) -> None:
        sizes = (self.length, self.names, self.numbers)
        if not all(0 <= size <= MOST for size in sizes) or self.machine not in MACHINES:
            raise ValueError(f"a matrix has up to {MOST} rows and columns, but got {self}")

    @property
    def width(self) -> int:
        return 1 + self.names + self.numbers

    @property
    def n_physics(self) -> int:
        return len(feature_names(self.machine)) if self.physics else 0


def paper_spec(kind: str) -> MatrixSpec:
    """25x22 (CPU) or 40x20 (GPU) as published: the one-hot takes 11 columns of the width."""
    length, width = PAPER_SIZES[kind]
    return MatrixSpec(
        length=length,
        names=0,
        numbers=width - len(PAPER_TYPES[kind]),
        log=False,
        implied=False,
        fill=False,
        context=False,
        physics=False,
        recorded=True,
        inline_names=True,
    )


def signed_log2(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """sign(x) * log2(1 + |x|): 0 stays 0, a doubling is a step of about one."""
    values = np.asarray(x, dtype=np.float64)
    return np.sign(values) * np.log2(1.0 + np.abs(values))


def lane_fill(extent_log2: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """4 where an extent is a multiple of 32 lanes, less where its last group is part empty."""
    extent = np.round(np.exp2(np.minimum(np.asarray(extent_log2, dtype=np.float64), 40.0)))
    groups = np.maximum(np.ceil(extent / LANES), 1.0)
    return np.asarray(4.0 * extent / (groups * LANES))


def _is_number(arg: Any) -> bool:
    return isinstance(arg, Hole | int | float)


def _is_name_hole(arg: Any) -> bool:
    return isinstance(arg, Hole) and arg.table is not None and isinstance(arg.table[0], str)


@dataclass(frozen=True, kw_only=True, eq=False)
class Template:
    """A sketch encoded, its holes open. `live` lists the rows that decisions reach."""

    types: npt.NDArray[np.uint8]  # [length]
    names: npt.NDArray[np.uint8]  # [length, names]
    numbers: Floats32  # [length, numbers], holes 0
    cells: Ints  # [n_cells, 3]: row, number column, value index
    physics: Meaning | None  # the first values, of which no cell is made
    sources: tuple[tuple[int, Table], ...]  # value index, counted on -> (decision, table)
    forms: tuple[LogExtent, ...]  # value index, counted on -> implied extent
    form_tables: dict[int, tuple[Any, ...]]
    n_rows: int
    n_decisions: int
    log: bool
    fill: bool

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        return np.arange(len(self.types)) < self.n_rows

    @property
    def live(self) -> Ints:
        return np.unique(self.cells[:, 0])

    def values(self, decisions: npt.ArrayLike) -> Floats32:
        """Encoded values `[n, v]`: what `cells` refers to."""
        rows = np.asarray(decisions, dtype=np.int64)
        rows = rows.reshape(len(rows), self.n_decisions)  # a sketch may leave nothing open
        out = np.empty((len(rows), self.n_values), dtype=np.float32)
        if self.physics is not None:
            out[:, : self.n_physics] = self.physics.features(self._decided(rows))
        for k, (decision, table) in enumerate(self.sources, self.n_physics):
            column: Any = rows[:, decision]
            if table is not None:
                column = np.asarray(table, dtype=np.float64)[column]
            out[:, k] = signed_log2(column) if self.log else column
        if self.forms:
            extents = self._implied(rows)
            first, count = self.n_physics + len(self.sources), len(self.forms)
            out[:, first : first + count] = np.logaddexp2(0.0, extents)
            if self.fill:
                out[:, first + count :] = lane_fill(extents)
        return out

    @property
    def n_values(self) -> int:
        return self.n_physics + len(self.sources) + len(self.forms) * (1 + self.fill)

    @property
    def n_physics(self) -> int:
        return 0 if self.physics is None else self.physics.n_features

    def _decided(self, rows: Ints) -> npt.NDArray[np.float64]:
        """Decisions, the categorical ones as the number they stand for."""
        values = rows.astype(np.float64)
        for decision, table in self.form_tables.items():
            values[:, decision] = np.asarray(table, dtype=np.float64)[rows[:, decision]]
        return values

    def _implied(self, rows: Ints) -> npt.NDArray[np.float64]:
        logs = np.log2(np.maximum(self._decided(rows), 1.0))
        weights = np.zeros((self.n_decisions, len(self.forms)))
        for k, form in enumerate(self.forms):
            for decision, coefficient in form.terms.items():
                weights[decision, k] = coefficient
        exact = logs @ weights + np.array([form.constant for form in self.forms])
        return np.asarray(np.maximum(exact, 0.0))

    def matrix(self, decisions: npt.ArrayLike) -> Floats32:
        """`[n, length, width]`: the constant cells repeated, the holes filled."""
        values = self.values(decisions)
        shift = 1 + self.names.shape[1]
        out = np.empty((len(values), len(self.types), shift + self.numbers.shape[1]), np.float32)
        out[:, :, 0] = self.types
        out[:, :, 1:shift] = self.names
        out[:, :, shift:] = self.numbers
        row, column, value = self.cells.T
        out[:, row, shift + column] = values[:, value]
        return out


class Encoder:
    """Encodes sketches for one vocabulary and one spec."""

    def __init__(self, spec: MatrixSpec, vocabulary: Vocabulary | None = None) -> None:
        self.spec = spec
        self.vocabulary = vocabulary or Vocabulary()

    def template(
        self, dialect: str, body: str, slots: Slots, context: Context | None = None
    ) -> Template:
        return self.encode(skeleton(dialect, body, slots), context)

    def encode(self, bones: Skeleton, context: Context | None = None) -> Template:
        spec = self.spec
        builder = _Builder(self, bones)
        if spec.context:
            builder.add_context(context or Context())
        for row in bones.rows:
            builder.add_row(row.type, _shown(row, spec), row.implied if spec.implied else None)
        return builder.template(context or Context())


def _shown(row: Row, spec: MatrixSpec) -> Sequence[Any]:
    """The arguments, less an extent that is not to be believed."""
    if not row.stale or spec.recorded:
        return row.args
    return (*row.args[:2], 0, *row.args[3:])


class _Builder:
    """Fills the arrays of one template, row by row; what does not fit is cropped."""

    def __init__(self, encoder: Encoder, bones: Skeleton) -> None:
        self.spec = encoder.spec
        self.vocabulary = encoder.vocabulary
        self.bones = bones
        spec = self.spec
        self.types = np.zeros(spec.length, dtype=np.uint8)
        self.names = np.zeros((spec.length, spec.names), dtype=np.uint8)
        self.numbers = np.zeros((spec.length, spec.numbers), dtype=np.float32)
        self.cells: list[tuple[int, int, int]] = []
        self.forms: list[tuple[int, LogExtent]] = []
        self.sources: dict[tuple[int, Table], int] = {}
        self.at = 0

    def add_context(self, context: Context) -> None:
        self.add_row(WORKLOAD_TYPE, (*context.dtypes, *context.sizes), None)

    def add_row(self, type_: str, args: Sequence[Any], implied: LogExtent | None) -> None:
        if self.at >= self.spec.length:
            return
        row, self.at = self.at, self.at + 1
        self.types[row] = self.vocabulary.type_id(type_)
        column = 0
        if self.spec.implied:
            column = 1 + self.spec.fill
            if implied is not None and implied.terms:
                self.forms.append((row, implied))
            elif implied is not None:
                self.numbers[row, 0] = np.logaddexp2(0.0, implied.constant)
                if self.spec.fill:
                    self.numbers[row, 1] = lane_fill(implied.constant)
        seen = 0
        for arg in args:
            if isinstance(arg, str) and not self.spec.inline_names:
                if seen < self.spec.names:
                    self.names[row, seen] = self.vocabulary.name_id(type_, arg)
                seen += 1
                continue
            if column < self.spec.numbers:
                self._put(type_, row, column, arg)
            column += 1

    def _put(self, type_: str, row: int, column: int, arg: Any) -> None:
        if isinstance(arg, Hole):
            table = arg.table
            if _is_name_hole(arg):
                assert table is not None
                table = tuple(self.vocabulary.name_id(type_, str(name)) for name in table)
            index = self.sources.setdefault((arg.decision, table), len(self.sources))
            self.cells.append((row, column, index))
            return
        value = self.vocabulary.name_id(type_, arg) if isinstance(arg, str) else arg
        self.numbers[row, column] = signed_log2(value) if self.spec.log else value

    def template(self, context: Context) -> Template:
        shift = self.spec.n_physics
        self.cells = [(row, column, shift + k) for row, column, k in self.cells]
        first = shift + len(self.sources)
        implied = [(row, 0, first + k) for k, (row, _) in enumerate(self.forms)]
        if self.spec.fill and self.spec.implied:
            later = first + len(self.forms)
            implied += [(row, 1, later + k) for k, (row, _) in enumerate(self.forms)]
        cells = np.array([*self.cells, *implied], dtype=np.int64).reshape(-1, 3)
        return Template(
            types=self.types,
            names=self.names,
            numbers=self.numbers,
            cells=cells,
            physics=(
                meaning_of(
                    self.spec.machine,
                    read_tiling(*self.bones.source),
                    self.bones.plan,
                    context.shapes,
                    context.blocks,
                )
                if self.spec.physics
                else None
            ),
            sources=tuple(self.sources),
            forms=tuple(form for _, form in self.forms),
            form_tables={
                d: table
                for d, table in self.bones.tables.items()
                if all(isinstance(item, int | float) for item in table)
            },
            n_rows=self.at,
            n_decisions=self.bones.n_decisions,
            log=self.spec.log,
            fill=self.spec.fill and self.spec.implied,
        )


def fit_spec(
    skeletons: Iterable[Skeleton], *, max_numbers: int = 40, context: bool = True
) -> MatrixSpec:
    """The smallest spec that crops nothing but rows wider than `max_numbers`."""
    length = names = numbers = 1
    for bones in skeletons:
        length = max(length, len(bones.rows))
        for row in bones.rows:
            count = sum(_is_number(arg) for arg in row.args)
            numbers = max(numbers, count)
            names = max(names, len(row.args) - count)
    return MatrixSpec(
        length=length + context,
        names=min(names, 4),
        numbers=min(numbers + 2, max_numbers),
        context=context,
    )


def paper_one_hot(matrix: Floats32, kind: str, vocabulary: Vocabulary | None = None) -> Floats32:
    """A matrix of `paper_spec(kind)` with its type column spread over 11 one-hot columns."""
    words = vocabulary or Vocabulary()
    known = np.array([words.type_id(type_) for type_ in PAPER_TYPES[kind]])
    hot = (matrix[:, :, :1] == known).astype(np.float32)
    return np.concatenate([hot, matrix[:, :, 1:]], axis=2)
