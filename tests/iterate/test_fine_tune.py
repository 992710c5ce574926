"""Fine-tuning on made-up records, without TVM: what is learnt from, and from which base."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iterate_support import micro_model
from rounds_support import CONFIG, PLATFORM, open_run, records, run_rounds, tasks_of
from tensorese.features.programs import DataError
from tensorese.iterate.fine_tune import FineTuning, fine_tuned, train_base
from tensorese.iterate.known import Known
from tensorese.language.sentence import UNKNOWN
from tensorese.models.base import load_model
from tensorese.models.tlm import FASTEST, TLM
from tensorese.records.nouns import Platform
from tensorese.records.store import Store

pytestmark = pytest.mark.null

QUICK = {"steps": "2", "tasks": "2", "rows": "3"}
BOX = Platform(name=PLATFORM)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("rounds") / "run"
    folder = run_rounds(out, records()).folder
    for place in (out / "models").iterdir():
        if place.name != "base":
            (place / "config.json").unlink()
    folder.head["target"] = '{"kind":"llvm","num-cores":1}'
    return folder


def test_only_finished_rounds_are_learnt_from(run: Any) -> None:
    """The store holds six of them."""
    assert Known(run, BOX).programs(0) is None
    for rounds in (1, 3):
        programs = Known(run, BOX).programs(rounds)
        assert programs is not None and len(programs) == 15 * rounds


def test_records_of_data_are_learnt_from_but_not_its_test_rows(run: Any, tmp_path: Path) -> None:
    from cpu_records_support import cpu_measurements

    with Store.open(tmp_path / "data", create=True) as store:
        store.ingest(cpu_measurements([PLATFORM], tasks=2, per_task=7, seed=1))
        store.ingest(cpu_measurements([PLATFORM], tasks=2, per_task=5, seed=2, split="test"))
    folder = copy.copy(run)
    folder.head = {**run.head, "data": [[str(tmp_path / "data"), 24]]}
    known = Known(folder, BOX)
    programs = known.programs(1)
    assert programs is not None and 15 < len(programs) <= 15 + 14
    assert sum(map(len, known._measured.values())) == 14


def test_the_base_is_taught_and_stays_as_it_was(run: Any, tmp_path: Path) -> None:
    base = load_model(micro_model(tmp_path / "micro", PLATFORM))
    assert isinstance(base, TLM)
    before = copy.deepcopy(base.tensors(half=False))
    programs = Known(run, BOX).programs(2)
    assert programs is not None
    tuning = FineTuning.named({**QUICK, "preference": "1"}, 0, has_model=True)
    hashes = set()
    for _ in range(2):
        model = fine_tuned(copy.deepcopy(base), programs, run, 2, tuning, "cpu", lambda entry: None)
        hashes.add(model.hash)
        loaded = load_model(run.model_path(2))
        assert loaded.hash == model.hash and loaded.card.metrics["rounds"] == 2
    assert len(hashes) == 1 and base.hash not in hashes, "the same again, and not the base"
    for name, tensor in base.tensors(half=False).items():
        assert np.array_equal(tensor, before[name])
    assert not list((run.path / "models").glob(".*")), "checkpoints are gone"


def test_the_wish_follows_the_stage() -> None:
    assert FineTuning.named({"stage": "best"}, 0).wish(FASTEST) == UNKNOWN
    assert FineTuning.named({}, 0).wish(UNKNOWN) == FASTEST
    assert FineTuning.named({"steps": "0"}, 0).wish(UNKNOWN) == UNKNOWN


def test_settings_are_those_of_train_tlm() -> None:
    tuning = FineTuning.named({"steps": "7", "lr": "1e-4", "preference": "3"}, 5)
    assert [(s.stage, s.steps, s.seed) for s in tuning.stages] == [
        ("speed", 7, 5), ("preference", 3, 5),
    ]  # fmt: skip
    for settings, said in (
        ({"stps": "7"}, "did you mean 'steps'"),
        ({"seed": "7"}, "name it with --seed"),
        ({"width": "320"}, "there is one already"),
    ):
        with pytest.raises(DataError, match=said):
            FineTuning.named(settings, 0, has_model=True)


def test_a_first_model_is_trained_from_data_alone(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True) as store:
        store.ingest(records(tasks=4, per_task=12))
    folder = open_run(tmp_path / "run", tasks_of(records()), CONFIG)
    folder.head["data"] = [[str(tmp_path / "data"), 48]]
    folder.model_path(0).rmdir()
    tuning = FineTuning.named({**QUICK, "pretrain": "1", "steps": "1"}, 0)
    train_base(folder, BOX, tuning, "cpu", lambda entry: None)
    assert isinstance(load_model(folder.model_path(0)), TLM)
