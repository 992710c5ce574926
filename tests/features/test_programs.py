from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from synthetic_support import matmul_program, matmul_workload
from tensorese.features.matrix import Encoder
from tensorese.features.programs import DataError, ProgramSet, encode_programs, read_programs
from tensorese.records.nouns import Measurement, Platform, Status
from tensorese.records.store import Store

pytestmark = pytest.mark.null


def _store(folder: Path, *measurements: Measurement) -> Store:
    store = Store.open(folder, create=True)
    store.ingest(measurements)
    return store


def _measured(tile: int, platform: str, status: Status, secs: float, **more: str) -> Measurement:
    program = matmul_program(matmul_workload(64, 64, 64), (1, tile, 1, 8, 4), 16)
    runs = (secs,) if status is Status.OK else ()
    where = Platform(name=platform)
    return Measurement(program=program, platform=where, status=status, run_secs=runs, **more)


def test_a_program_on_two_platforms_is_one_row(tmp_path: Path) -> None:
    store = _store(
        tmp_path,
        _measured(2, "a", Status.OK, 1.0),
        _measured(2, "b", Status.OK, 3.0),
        _measured(4, "a", Status.RUN_ERROR, 0.0),
        _measured(8, "b", Status.INFRA_ERROR, 0.0),
    )
    programs = read_programs([store])
    assert len(programs) == 3
    both = np.isfinite(programs.latency).all(1)
    np.testing.assert_array_equal(programs.latency[both], [[1.0, 3.0]])
    assert programs.failed.sum() == 1  # the machinery's fault is no label
    assert len(programs.pairs) == len(programs.tasks) == 1


def test_repeated_measurements_are_averaged(tmp_path: Path) -> None:
    store = _store(tmp_path, _measured(2, "a", Status.OK, 1.0), _measured(2, "a", Status.OK, 3.0))
    np.testing.assert_array_equal(read_programs([store]).latency, [[2.0]])


def test_rows_marked_test_are_never_read(tmp_path: Path) -> None:
    store = _store(
        tmp_path,
        _measured(2, "a", Status.OK, 1.0),
        _measured(4, "a", Status.OK, 1.0, split="test"),
    )
    assert len(read_programs([store])) == 1
    assert len(read_programs([store], split="all")) == 2


def test_encoded_matrix_equals_templates(toy: ProgramSet) -> None:
    encoded = encode_programs(toy, Encoder(toy.spec()))
    for k, members in enumerate(toy.members):
        want = encoded.templates[k].matrix(toy.decisions[k])
        np.testing.assert_array_equal(encoded.matrix(members), want)


def test_digest_follows_the_labels(tmp_path: Path) -> None:
    one = read_programs([_store(tmp_path / "1", _measured(2, "a", Status.OK, 1.0))])
    two = read_programs([_store(tmp_path / "2", _measured(2, "a", Status.OK, 1.5))])
    assert one.digest != two.digest


def test_programs_are_in_the_order_of_their_content_not_of_their_coming(tmp_path: Path) -> None:
    rows = [_measured(t, p, Status.OK, t / 8 + 1) for t in (1, 2, 4, 8, 16) for p in ("a", "b")]
    one, two = (
        read_programs([_store(tmp_path / f"{k}{part}", *mine) for part, mine in enumerate(parts)])
        for k, parts in enumerate([(rows[:6], rows[6:]), (rows[6:], rows[:6])])
    )
    assert one.ids == two.ids and one.tasks == two.tasks
    np.testing.assert_array_equal(one.latency, two.latency)
    np.testing.assert_array_equal(one.decisions[0], two.decisions[0])


def test_empty_store_and_unknown_platform(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds none"):
        read_programs([Store.open(tmp_path / "empty", create=True)])
    store = _store(tmp_path / "one", _measured(2, "v100", Status.OK, 1.0))
    with pytest.raises(DataError, match=r"did you mean 'v100'"):
        read_programs([store], platforms=["v10"])
