"""All models on all platforms, on made-up records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tensorese.evaluation.model_table import Bench, Row, bench_models
from tensorese.evaluation.trees import installed_trees
from tensorese.models.disk import Card
from tensorese.models.folder import save_model
from tensorese.models.mtl_tlp import MTLTLP

from cpu_records_support import cpu_measurements
from tensorese.cli import run
from tensorese.features.matrix import MatrixSpec
from tensorese.features.programs import DataError
from tensorese.models.tlp import TLPConfig
from tensorese.records.store import Store

pytestmark = pytest.mark.null

PLATFORMS = ("lake-1c", "lake-2c")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    with Store.open(folder, create=True) as store:
        store.ingest(cpu_measurements(PLATFORMS, tasks=8))
        store.ingest(cpu_measurements(PLATFORMS, tasks=4, split="test", seed=1))
        store.ingest(cpu_measurements(("zen-2c",), tasks=4, split="test", seed=1))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    spec = MatrixSpec(length=1, names=1, numbers=4, machine="cpu")
    config = TLPConfig(spec=spec, members=0, physics_members=1)
    folder = tmp_path_factory.mktemp("models") / "both"
    return save_model(folder, MTLTLP(config, PLATFORMS), Card())


def _rows(rows: list[Row], system: str) -> dict[str, Row]:
    return {row.platform: row for row in rows if row.system == system}


def test_models_and_random_order(store: Path, model: Path) -> None:
    with Store.open(store) as opened:
        rows = bench_models([opened], [model])
    random, mine = _rows(rows, "random order"), _rows(rows, "both")
    assert set(random) == set(mine) == {*PLATFORMS, "zen-2c"}
    assert mine["lake-1c"].note == "" and mine["zen-2c"].note == "head lake-2c"
    for platform in PLATFORMS:
        assert mine[platform].figures["tasks"] == 4
        assert len(mine[platform].ratios) == 4
        assert 0 < random[platform].figures["top1"] < random[platform].figures["top5"] <= 1


def test_the_ceiling_is_of_second_measurements(store: Path, model: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "again", create=True) as again, Store.open(store) as opened:
        second = cpu_measurements(PLATFORMS, tasks=4, split="test", seed=1)
        again.ingest(m for m in second if m.platform.name == "lake-1c")
        rows = bench_models([opened], [model], again=[again])
    found, mine = _rows(rows, "oracle"), _rows(rows, "both")
    assert set(found) == {"lake-1c"}
    assert found["lake-1c"].figures["top1"] > 0.9
    # The model is held against it on the same programs.
    assert set(mine["lake-1c"].twice[5]) == set(found["lake-1c"].twice[5])
    assert all(0 < ratio <= 1 for ratio in mine["lake-1c"].twice[1].values())
    assert mine["lake-2c"].twice == {}


def test_a_ranking_is_held_against_the_oracle_on_its_programs(store: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "again", create=True) as again, Store.open(store) as opened:
        found = cpu_measurements(PLATFORMS, tasks=4, split="test", seed=1)
        second = [m for m in found if m.platform.name == "lake-1c"][::2]
        again.ingest(second)
        bench = Bench(opened, ["lake-1c"], [again])
        measured = {m.program.id for m in second}
        latency = bench.programs.latency[:, 0]
        twice = np.isin(bench.programs.ids, sorted(measured))
        # Perfect where there is a second time, and the worst first elsewhere.
        row = bench.row("lake-1c", "me", np.where(twice, -latency, latency + 1))
        assert row is not None
        assert set(row.twice[1].values()) == {1.0}
        assert row.figures["top1"] < 1.0


@pytest.mark.skipif(not installed_trees(), reason="neither LightGBM nor XGBoost is installed")
def test_trees_learn_from_training_rows(store: Path) -> None:
    with Store.open(store) as opened:
        rows = bench_models([opened], [], platforms=["lake-1c"], trees=True)
    random = _rows(rows, "random order")["lake-1c"].figures["top1"]
    for kind in installed_trees():
        assert _rows(rows, kind)["lake-1c"].figures["top1"] > random + 0.1


def test_a_model_that_has_seen_the_tasks_is_refused(store: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    spec = MatrixSpec(length=1, names=1, numbers=4, machine="cpu")
    config = TLPConfig(spec=spec, members=0, physics_members=1)
    with Store.open(store) as opened:
        seen = tuple(opened.workloads())
        folder = save_model(
            tmp_path / "cheat", MTLTLP(config, PLATFORMS), Card(training_workloads=seen)
        )
        with pytest.raises(DataError, match="cheat was trained on 4 of these 4"):
            bench_models([opened], [folder], platforms=["lake-1c"])


def test_the_command(store: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["bench-models", "--data", str(store), "--model", str(model)]
    assert run([*asked, "--platform", "lake-1c"]) == 0
    assert "random order" in capsys.readouterr().out
    assert run([*asked, "--platform", "lake-1d"]) == 2
    assert "did you mean 'lake-1c'" in capsys.readouterr().err
    assert run(["bench-models", "--data", str(store / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run([*asked, "--json"]) == 0
    assert '"system": "both"' in capsys.readouterr().out
