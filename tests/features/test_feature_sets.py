"""The contract of feature sets: every registered one, on real programs for a CPU and a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tensorese.features.base import (
    FeatureError,
    Ragged,
    extract,
    extractor,
    feature_set,
    feature_sets,
    of_programs,
)
from tensorese.features.lowered import COARSE, COLUMNS, LoweredCache, LowerStatus
from tensorese.features.programs import Encoded, ProgramSet, read_programs
from tensorese.features.sentences import SentenceSet
from tensorese.records.nouns import Measurement
from tensorese.records.store import Store
from tensorese.targets import Target

DATA = Path(__file__).resolve().parents[2] / "data"
PLATFORMS = {"cpu": "znver4-2c", "h200": "h200"}
# What model folders store: who changes a definition changes its version, and refuses them.
VERSIONS = {
    "physics-cpu": "904a531f",
    "physics-gpu": "6762a3f0",
    "physics-cuda": "0cceddec",
    "decisions": "1470c893",
    "matrix": "ace6c688",
    "lowered": "72abd864",
    "sentence": "2e7992a2",
    "sentence-atomic": "c8529099",
}
HERE = [name for name in feature_sets() if not feature_set(name).lowers]
LOWERING = [name for name in feature_sets() if feature_set(name).lowers]


class Sample:
    """Measured programs of three tasks on one platform, also as a program set."""

    def __init__(self, name: str, folder: Path) -> None:
        with Store.open(DATA / name) as store:
            by_task: dict[str, list[Measurement]] = {}
            for m in store.measurements(platform=PLATFORMS[name]):
                if m.status == "ok" and len(by_task.setdefault(m.program.workload.id, [])) < 8:
                    by_task[m.program.workload.id].append(m)
        self.measurements = [m for task in sorted(by_task)[::60][:3] for m in by_task[task]]
        self.target = Target.from_json(self.measurements[0].platform.target)
        self.folder = folder
        with Store.open(folder, create=True) as store:
            store.ingest(self.measurements)
            self.programs: ProgramSet = read_programs([store])


@pytest.fixture(scope="module", params=sorted(PLATFORMS))
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.null
def test_versions_are_those_that_model_folders_store() -> None:
    assert {name: feature_set(name).version for name in feature_sets()} == VERSIONS


@pytest.mark.null
def test_an_unknown_set_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(FeatureError, match=r"physics-cpu'\?"):
        feature_set("physics_cpu")


@pytest.mark.null
@pytest.mark.parametrize("name", HERE)
def test_a_set_has_its_shape_and_is_the_same_again(name: str, sample: Sample) -> None:
    for pair, decisions in zip(sample.programs.pairs, sample.programs.decisions, strict=True):
        workload = sample.programs.workloads[pair.workload]
        values = extract(name, workload, pair.sketch, decisions)
        again = extractor(name)(workload, pair.sketch, decisions.tolist())
        _check_shape(feature_set(name).shape, values, len(decisions))
        _check_equal(values, again)


@pytest.mark.null
@pytest.mark.parametrize("name", HERE)
def test_a_program_has_the_same_features_alone_and_among_others(name: str, sample: Sample) -> None:
    pair, decisions = sample.programs.pairs[0], sample.programs.decisions[0]
    workload = sample.programs.workloads[pair.workload]
    together = extract(name, workload, pair.sketch, decisions)
    for k in range(len(decisions)):
        alone = extract(name, workload, pair.sketch, decisions[k : k + 1])
        if isinstance(together, dict):
            assert isinstance(alone, dict)
            _check_equal({column: together[column][k : k + 1] for column in alone}, alone)
        else:
            _check_equal(_rows(together)[k : k + 1], _rows(alone))


@pytest.mark.null
@pytest.mark.parametrize("name", HERE)
def test_decisions_are_seen(name: str, sample: Sample) -> None:
    """Programs of one sketch are told apart, if not by every set on every kind of machine."""
    distinct = 0
    for pair, decisions in zip(sample.programs.pairs, sample.programs.decisions, strict=True):
        workload = sample.programs.workloads[pair.workload]
        values = extract(name, workload, pair.sketch, decisions)
        rows = _rows(values)
        distinct += len(np.unique(rows.reshape(len(decisions), -1), axis=0))
    assert distinct > len(sample.programs) / 2


@pytest.mark.null
@pytest.mark.parametrize("name", HERE)
def test_many_tasks_at_once_or_a_word_why_not(name: str, sample: Sample) -> None:
    if feature_set(name).shape == "named":
        with pytest.raises(FeatureError, match="a sketch at a time"):
            of_programs(name, sample.programs)
        return
    together = of_programs(name, sample.programs)
    every = np.arange(len(sample.programs))
    rows = together.matrix(every) if isinstance(together, Encoded) else together
    programs = sample.programs
    for k, (pair, members, decisions) in enumerate(
        zip(programs.pairs, programs.members, programs.decisions, strict=True)
    ):
        alone = extract(name, programs.workloads[pair.workload], pair.sketch, decisions)
        if isinstance(rows, SentenceSet):
            assert np.array_equal(rows.members[k], members)
            rows_of = replace(
                rows, grammars=rows.grammars[k : k + 1], written=rows.written[k : k + 1]
            )
            _check_equal(_rows(rows_of), _rows(alone))
        else:
            assert isinstance(rows, np.ndarray)
            _check_equal(rows[members], alone)


@pytest.mark.null
@pytest.mark.parametrize("name", LOWERING)
def test_a_set_that_lowers_says_where_it_comes_from(name: str, sample: Sample) -> None:
    with pytest.raises(FeatureError, match="lower_programs"):
        extractor(name)
    with pytest.raises(FeatureError, match="these were not; lower them"):
        of_programs(name, sample.programs)


@pytest.mark.tvm
@pytest.mark.parametrize("name", LOWERING)
def test_lowered_programs_have_rows_of_their_own(name: str, sample: Sample) -> None:
    from tensorese.measure.lowering import lower_programs

    wanted = [m.program for m in sample.measurements]
    cache = lower_programs(sample.folder, wanted, sample.target)
    assert set(cache.statuses(sample.programs.ids)) == {LowerStatus.OK}
    ragged = of_programs(name, _with(sample, cache))
    assert isinstance(ragged, Ragged)
    _check_shape(feature_set(name).shape, ragged, len(sample.programs))
    assert ragged.counts.min() > 0
    assert len({cache[name].rows.tobytes() for name in sample.programs.ids}) > len(wanted) / 2
    again = of_programs(name, _with(sample, LoweredCache(sample.folder, sample.target)))
    _check_equal(ragged, again)


def _with(sample: Sample, cache: LoweredCache) -> ProgramSet:
    return replace(sample.programs, lowered=cache.of_programs(sample.programs))


def _rows(values: Any) -> npt.NDArray[Any]:
    """`[n, ...]`, of programs of one sketch."""
    if isinstance(values, dict):
        return np.stack(list(values.values()), 1)
    if isinstance(values, SentenceSet):
        (written,) = values.written
        answers = np.where(written.asked, written.answers, -1)
        return np.concatenate([answers[..., None], written.words], -1)
    assert isinstance(values, np.ndarray)
    return values


def _check_shape(shape: str, values: Any, n: int) -> None:
    if shape == "row":
        assert values.shape[0] == n
        assert values.ndim == 2
    elif shape == "matrix":
        assert values.shape[0] == n
        assert values.ndim == 3
    elif shape == "tokens":
        assert len(values) == n == len(_rows(values))
        return  # whole numbers
    elif shape == "named":
        assert all(column.shape == (n,) for column in values.values())
    else:
        assert shape == "ragged"
        assert values.values.shape == (values.counts.sum(), COLUMNS)
        assert values.coarse.shape == (n, len(COARSE))
    arrays = values.values() if shape == "named" else [getattr(values, "values", values)]
    assert all(np.isfinite(array).all() for array in arrays)


def _check_equal(one: Any, other: Any) -> None:
    if isinstance(one, SentenceSet):
        one, other = _rows(one), _rows(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            _check_equal(one[name], other[name])
    elif isinstance(one, Ragged):
        for name in ("values", "counts", "coarse"):
            _check_equal(getattr(one, name), getattr(other, name))
    else:
        np.testing.assert_array_equal(one, other)
