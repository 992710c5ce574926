"""A run with finalists that came close, compiled: the network decides, and the run keeps it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy_support import make_run, small_network
from tensorese.deploy import compile as compiling
from tensorese.deploy import compile_run
from tensorese.deploy import play_off as playing
from tensorese.deploy.build import sha256
from tensorese.deploy.compile import Timing
from tensorese.deploy.folder import read_run
from tensorese.deploy.prepare import prepare_shapes

pytestmark = pytest.mark.tvm

QUICK = Timing(rounds=1, secs=0.02)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_network(tmp_path_factory.mktemp("model") / "small.pt2")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rivals and one round, whose winners are made up: noise would be tested else."""
    monkeypatch.setattr(compiling, "quick", lambda: [])
    monkeypatch.setattr(playing, "ROUNDS", 1)
    monkeypatch.setattr(playing, "_FEWEST_ROUNDS", 1)
    monkeypatch.setattr(playing, "decide", lambda winners, others: dict.fromkeys(others[0], 0))
    monkeypatch.setattr(playing, "end_to_end", lambda arena: {"alone": 2.0, "decided": 1.0})


def test_the_library_and_the_run_take_what_the_network_prefers(model: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", model, programs=3, others=2)
    before = read_run(run).best
    certificate = compile_run(run, timing=QUICK)
    said = certificate["play_off"]
    after = read_run(run).best
    choice = {id_ for id_, best in before.items() if best.others}
    assert said["decided"].keys() == choice and said["tasks"] == len(choice) > 1
    for id_, row in said["decided"].items():
        assert after[id_].decisions == before[id_].others[0].decisions and not after[id_].others
        assert row["secs"] > 0 and row["alone_secs"] > 0
    records = (run / "database" / "database_tuning_record.json").read_text().splitlines()
    assert len(records) == len(after)
    (built,) = prepare_shapes(read_run(run), lambda _: None)
    library = sha256(built.build(tmp_path / "again.so"))
    assert library == certificate["library"]["sha256"], "what `compile` builds from now on"


def test_a_program_that_is_wrong_in_the_network_gives_its_place_back(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", model, only="conv2d", programs=2, others=1)
    ((id_, best),) = read_run(run).best.items()
    original = compiling.verify

    def verify(built: Any, arena: Any) -> Any:
        if built.run.best[id_] == best.others[0]:
            raise compiling.WrongKernel("made up to be wrong", id_, 1.0)
        return original(built, arena)

    monkeypatch.setattr(compiling, "verify", verify)
    certificate = compile_run(run, timing=QUICK)
    assert certificate["play_off"]["decided"] == {} == certificate["verification"]["replaced"]
    assert read_run(run).best[id_].decisions == best.decisions
    assert json.loads((run / "certificate.json").read_text())["play_off"]["tasks"] == 1
