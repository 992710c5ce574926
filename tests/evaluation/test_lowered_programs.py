"""Programs are lowered before a model that asks for it reads them, or refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from models_support import MAKERS, physics_model

from cpu_records_support import cpu_measurements
from lowered_support import keep_made_up, made_up_of
from synthetic_support import synthetic_measurements
from tensorese.cli import run
from tensorese.errors import StoreError
from tensorese.evaluation.inputs import Inputs, of_tasks
from tensorese.evaluation.lowered_programs import ready_for
from tensorese.features.base import feature_set
from tensorese.features.lowered import Lowered, LoweredCache, LowerStatus
from tensorese.features.programs import DataError, read_programs
from tensorese.models.base import Card, save_model
from tensorese.records.store import Store
from tensorese.targets import Target

pytestmark = pytest.mark.null

PLATFORMS = ("lake-1c", "lake-2c")
LOWERED = [feature_set("lowered")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records") / "store"
    with Store.open(folder, create=True) as store:
        store.ingest(cpu_measurements(PLATFORMS, tasks=4))
    keep_made_up(folder)
    return folder


def test_rows_are_found_beside_the_store_by_any_platform_of_its_kind(store: Path) -> None:
    with Store.open(store) as opened:
        for name in PLATFORMS:  # kept for the first of them
            programs = ready_for(LOWERED, read_programs([opened], platforms=[name]), [opened])
            assert programs.lowered is not None
            np.testing.assert_array_equal(programs.lowered.values, made_up_of(programs).values)
            few = of_tasks(programs, [2, 1])
            assert few.lowered is not None and len(few.lowered) == len(few)
            np.testing.assert_array_equal(few.lowered.values, made_up_of(few).values)


def test_programs_of_two_stores_have_their_rows_beside_each(store: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "more", create=True) as more:
        more.ingest(cpu_measurements(PLATFORMS, tasks=3, split="test"))
    keep_made_up(tmp_path / "more")
    with Store.open(store) as first, Store.open(tmp_path / "more") as second:
        programs = read_programs([first, second], split="all")
        ready = ready_for(LOWERED, programs, [first, second])
    assert ready.lowered is not None and len(programs.tasks) == 7
    np.testing.assert_array_equal(ready.lowered.values, made_up_of(programs).values)


def test_nothing_is_lowered_for_a_model_of_decisions(store: Path) -> None:
    with Store.open(store) as opened:
        programs = read_programs([opened])
        assert ready_for([physics_model().needs], programs, [opened]) is programs
        inputs = Inputs(programs, [opened])
        inputs.scores(physics_model(PLATFORMS), "lake-1c")
        assert inputs.programs.lowered is None


def test_logs_that_cannot_be_lowered_are_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.ingest(synthetic_measurements())
        with pytest.raises(DataError, match="none of these 480 is one: imported logs cannot"):
            ready_for(LOWERED, read_programs([store]), [store])


def test_every_verb_says_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(tmp_path / "store", create=True) as store:
        store.ingest(synthetic_measurements())
        spec = read_programs([store]).spec()
    model = save_model(tmp_path / "m", MAKERS["tenset-mlp"](spec, "gpu", ("toy",)), Card())
    data = ["--data", str(tmp_path / "store")]
    verbs = (
        ["train", "tenset-mlp", *data, "--out", str(tmp_path / "out")],
        ["train", "xgboost", *data, "--out", str(tmp_path / "out")],
        ["eval", str(model), *data],
        ["score", str(model), str(tmp_path / "store")],
    )
    for verb in verbs:
        capsys.readouterr()
        assert run(verb) == 2, verb
        said = capsys.readouterr()
        (line,) = said.err.splitlines()
        assert "cannot be lowered; give records" in line and not said.out


def test_cpus_and_gpus_are_lowered_apart(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.ingest(cpu_measurements(("lake-1c",), tasks=2))
        other = '{"kind":"cuda","arch":"sm_90"}'
        for m in cpu_measurements(("lake-2c",), tasks=2, seed=1):
            store.append(replace(m, platform=replace(m.platform, name="gpu", target=other)))
        with pytest.raises(DataError, match="of gpu, lake-1c; name one of them with --platform"):
            ready_for(LOWERED, read_programs([store]), [store])


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    target = Target.from_json('{"kind":"llvm","mcpu":"lake","num-cores":1}')
    cache = LoweredCache(tmp_path, target)
    cache.folder.write_text("a file where the folder should be")
    cache.add("a", Lowered(LowerStatus.NO_ROWS, np.zeros((0, 164), np.float32)))
    with pytest.raises(StoreError, match=r"cannot be written .*; copy the store"):
        cache.flush()
