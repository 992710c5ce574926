"""Every way to see a program as numbers, by name: a set has a version and a shape.

A model names the set it needs and stores the version it was trained with; numbers of another
version mean something else, so its folder is refused. What a shape is in arrays:

- `row`: `[n, columns]`, one row a program;
- `named`: columns `[n]` by name, for what sketches of a task share in part only;
- `matrix`: `[n, rows, columns]`, of many programs an `Encoded`, which makes matrices by index;
- `ragged`: a `Ragged`, some rows a program and one coarse row beside them;
- `tokens`: a `SentenceSet`, questions and answers sketch by sketch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from functools import lru_cache, partial
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats32
from tensorese.errors import TensoreseError, did_you_mean
from tensorese.features.context import context_of
from tensorese.features.decisions import VERSION as DECISIONS_VERSION
from tensorese.features.decisions import Named, named_features
from tensorese.features.lowered import VERSION as LOWERED_VERSION
from tensorese.features.lowered import Ragged as Ragged
from tensorese.features.matrix import Context, Encoder, MatrixSpec, Template
from tensorese.features.physics import MACHINES, Machine, feature_names, features_hash
from tensorese.features.programs import Encoded, ProgramSet, encode_programs
from tensorese.features.reading import Reading
from tensorese.features.sentences import (
    ATOMIC,
    DEFINITION,
    SentenceSet,
    sentences,
    sentences_of,
)
from tensorese.language.vocabulary import Vocabulary
from tensorese.records.nouns import Sketch, Workload

Shape: TypeAlias = Literal["row", "named", "matrix", "ragged", "tokens"]
MATRIX = MatrixSpec(physics=False)
"""The spec of the set `matrix`; a model that fits its own uses an `Encoder` of it."""
_KEPT = 1024
"""Sketches of tasks whose reading is cached: a search comes back to the same ones."""


class FeatureError(TensoreseError):
    """A feature set that is not there, or that cannot be had of these programs."""


@dataclass(frozen=True, kw_only=True)
class FeatureSet:
    """What is computed, not how: two sets of one name and version hold the same numbers."""

    name: str
    version: str
    """8 hex digits of the columns' names, order and definition."""
    shape: Shape
    lowers: bool = False
    """Whether the program must be lowered first, which takes TVM and milliseconds."""


Features: TypeAlias = Floats32 | Named | Encoded | Ragged | SentenceSet


class Extractor(Protocol):
    def __call__(
        self, workload: Workload, sketch: Sketch, decisions: npt.ArrayLike
    ) -> Floats32 | Named | Ragged | SentenceSet:
        """Of `[n, d]` decisions of one sketch; the same programs always give the same numbers."""
        ...


def feature_set(name: str) -> FeatureSet:
    return _entry(name).set


def feature_sets() -> tuple[str, ...]:
    return tuple(_SETS)


def extractor(name: str) -> Extractor:
    """What computes the set in this process; sets that lower come from the farm or its cache."""
    entry = _entry(name)
    if entry.extract is None:
        raise FeatureError(
            f"features of decisions are computed here, but {name!r} needs the lowered program; "
            "take it from measure.lowering.lower_programs"
        )
    return entry.extract


def extract(
    name: str, workload: Workload, sketch: Sketch, decisions: npt.ArrayLike
) -> Floats32 | Named | Ragged | SentenceSet:
    return extractor(name)(workload, sketch, decisions)


def of_programs(name: str, programs: ProgramSet) -> Features:
    """A set of all programs, in their order; sets that lower were put there before."""
    entry = _entry(name)
    if entry.set.lowers:
        if programs.lowered is None:
            raise FeatureError(
                f"{name!r} is read of programs that were lowered, but these were not; lower them "
                "with evaluation.lowered_programs.ready_for"
            )
        return programs.lowered
    if entry.of_programs is None:
        raise FeatureError(
            f"features of many tasks need common columns, but those of {name!r} are named by "
            "sketch; extract them a sketch at a time"
        )
    return entry.of_programs(programs)


def physics_rows(programs: ProgramSet, machine: Machine) -> Floats32:
    """`[n, features]` of every program."""
    values = np.zeros((len(programs), len(feature_names(machine))), dtype=np.float32)
    for pair, members, decisions in zip(
        programs.pairs, programs.members, programs.decisions, strict=True
    ):
        sketch = pair.sketch
        reading = Reading(machine, sketch.dialect, sketch.body, sketch.slots, pair.context)
        values[members] = reading.features(decisions)
    return values


# -- the sets ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Entry:
    set: FeatureSet
    extract: Extractor | None = None
    of_programs: Callable[[ProgramSet], Features] | None = None


@dataclass(frozen=True)
class _Place:
    """A sketch of a workload: compared by ids, which is what a cache may keep it by."""

    ids: tuple[str, str]
    workload: Workload = field(compare=False)
    sketch: Sketch = field(compare=False)

    @property
    def context(self) -> Context:
        return context_of(self.workload)


def _place(workload: Workload, sketch: Sketch) -> _Place:
    return _Place((workload.id, sketch.id), workload, sketch)


@lru_cache(maxsize=_KEPT)
def _reading(machine: Machine, place: _Place) -> Reading:
    sketch = place.sketch
    return Reading(machine, sketch.dialect, sketch.body, sketch.slots, place.context)


@lru_cache(maxsize=_KEPT)
def _template(place: _Place) -> Template:
    sketch = place.sketch
    return Encoder(MATRIX).template(sketch.dialect, sketch.body, sketch.slots, place.context)


def _physics(machine: Machine) -> _Entry:
    def one(workload: Workload, sketch: Sketch, decisions: npt.ArrayLike) -> Floats32:
        return _reading(machine, _place(workload, sketch)).features(decisions)

    name = f"physics-{machine}"
    return _Entry(
        set=FeatureSet(name=name, version=features_hash(machine), shape="row"),
        extract=one,
        of_programs=lambda programs: physics_rows(programs, machine),
    )


def _named(workload: Workload, sketch: Sketch, decisions: npt.ArrayLike) -> Named:
    return named_features(sketch, np.asarray(decisions, dtype=np.int64))


def _matrix(workload: Workload, sketch: Sketch, decisions: npt.ArrayLike) -> Floats32:
    return _template(_place(workload, sketch)).matrix(decisions)


def version_of(*definition: object) -> str:
    """8 hex digits of what a set's numbers depend on."""
    return hashlib.sha256(repr(definition).encode()).hexdigest()[:8]


def _entry(name: str) -> _Entry:
    if name not in _SETS:
        raise FeatureError(
            f"a feature set must be one of {', '.join(_SETS)}, but got {name!r}"
            f"{did_you_mean(name, _SETS)}"
        )
    return _SETS[name]


def _registered(*entries: _Entry) -> Mapping[str, _Entry]:
    return {entry.set.name: entry for entry in entries}


_MACHINES: tuple[Machine, ...] = ("cpu", "gpu", "cuda")
assert sorted(_MACHINES) == sorted(MACHINES)
_SETS: Mapping[str, _Entry] = _registered(
    *(_physics(machine) for machine in _MACHINES),
    _Entry(
        set=FeatureSet(name="decisions", version=version_of(DECISIONS_VERSION), shape="named"),
        extract=_named,
    ),
    _Entry(
        set=FeatureSet(
            name="matrix",
            version=version_of(astuple(MATRIX), Vocabulary().hash),
            shape="matrix",
        ),
        extract=_matrix,
        of_programs=lambda programs: encode_programs(programs, Encoder(MATRIX)),
    ),
    _Entry(
        set=FeatureSet(name="sentence", version=version_of(DEFINITION), shape="tokens"),
        extract=sentences,
        of_programs=sentences_of,
    ),
    _Entry(
        set=FeatureSet(name="sentence-atomic", version=version_of(ATOMIC), shape="tokens"),
        extract=partial(sentences, atomic=True),
        of_programs=partial(sentences_of, atomic=True),
    ),
    _Entry(set=FeatureSet(name="lowered", version=LOWERED_VERSION, shape="ragged", lowers=True)),
)
