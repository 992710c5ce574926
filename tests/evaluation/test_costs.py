"""What a model costs, beside how it ranks; and a comparison that goes on where it was stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from models_support import ensemble_model, physics_model

from cpu_records_support import cpu_measurements
from tensorese.cli import run
from tensorese.evaluation.compare import compare
from tensorese.evaluation.costs import TRAINING, costs_of
from tensorese.evaluation.rows import RowFile
from tensorese.features.programs import DataError, read_programs
from tensorese.models.base import Card, save_model
from tensorese.records.store import Store

pytestmark = pytest.mark.null

PLATFORMS = ("lake-1c", "lake-2c")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records") / "store"
    with Store.open(folder, create=True) as store:
        store.ingest(cpu_measurements(PLATFORMS, tasks=4, split="test"))
    return folder


def test_costs_of_a_folder(store: Path, tmp_path: Path) -> None:
    model = physics_model(PLATFORMS)
    folder = save_model(tmp_path / "m", model, Card(metrics={TRAINING: 12.5}))
    with Store.open(store) as opened:
        programs = read_programs([opened], split="test")
        inputs = model.read_all(programs)
        costs = costs_of(model, folder, programs, opened, "lake-1c", inputs)
    assert costs.training_seconds == 12.5
    assert costs.bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert 1 < costs.feature_us < 1e5 and costs.scores_a_second > 100


def test_rows_are_made_once_and_again_for_other_weights(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorese.evaluation import inputs

    reads = []
    read = inputs.inputs_of

    def counted(model: inputs.Model, programs: inputs.ProgramSet) -> object:
        reads.append(model.kind)
        return read(model, programs)

    monkeypatch.setattr(inputs, "inputs_of", counted)
    file, folder = tmp_path / "rows.json", tmp_path / "mine"
    save_model(folder, physics_model(PLATFORMS), Card())
    with Store.open(store) as opened:
        first = compare([opened], [folder], kept=file)
        assert reads == ["physics"]
        again = compare([opened], [folder], kept=file)
        assert reads == ["physics"] and again == first
        save_model(folder, ensemble_model(PLATFORMS), Card())
        other = compare([opened], [folder], kept=file)
    assert reads == ["physics", "ensemble"] and other != first
    assert len(RowFile(file).rows) == len(other) == 4  # replaced, not added


def test_the_verb_prints_costs_and_keeps_rows(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_model(tmp_path / "mine", physics_model(PLATFORMS), Card())
    rows = tmp_path / "rows.json"
    verb = ["compare", "--data", str(store), "--model", str(folder), "--rows", str(rows)]
    assert run([*verb, "--costs"]) == 0
    assert "scores/s" in capsys.readouterr().out
    assert {row.system for row in RowFile(rows).rows} == {"random order", "mine"}
    rows.write_text("[]")
    assert run(verb) == 2
    assert "rows.json is none; name another" in capsys.readouterr().err
    with pytest.raises(DataError):
        RowFile(rows)
