from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from cpu_records_support import cpu_measurements
from synthetic_support import synthetic_measurements
from tensorese.cli import run
from tensorese.records.importers import Skipped
from tensorese.records.importers.ansor import read_ansor
from tensorese.records.store import Store

pytestmark = pytest.mark.null

FILES = ("model.safetensors", "config.json", "card.md")
QUICK = ["--set", "width=16", "--set", "heads=2", "--set", "epochs=2", "--set", "members=1"]
QUICK += ["--device", "cpu"]


def _store(folder: Path, **what: Any) -> Path:
    with Store.open(folder, create=True) as store:
        store.ingest(synthetic_measurements(**what))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    return _store(folder / "store", platforms=("fast", "slow"), tasks=10, per_task=70)


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "model"
    assert run(["train", "mtl-tlp", "--data", str(data), "--out", str(out), *QUICK]) == 0
    return out


def _refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    return said


def test_train_writes_a_model_folder(model: Path) -> None:
    assert {p.name for p in model.iterdir()} == {*FILES, "curve.jsonl"}
    config = json.loads((model / "config.json").read_text())
    assert config["kind"] == "mtl-tlp" and config["platforms"] == ["fast", "slow"]
    assert config["section"]["spec"]["physics"] is False  # the language alone
    card = config["card"]
    assert len(card["training_workloads"]) == 8  # of 10; fold 0 holds 2
    assert "fast held-out top1" in card["metrics"]
    assert "adding them" in card["metrics"]["transfer"]


def test_eval_judges_unseen_workloads_only(
    model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["eval", str(model), "--data", str(data), "--platform", "slow"]
    assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tasks"] == 2
    for key in ("top1", "top5", "top10", "top1_pooled", "pairwise", "random_top1", "random_top5"):
        assert 0.0 <= found[key] <= 1.0
    assert run([*arguments, "--thin"]) == 0
    assert "2 unseen tasks" in capsys.readouterr().out


def test_score_prints_every_program(
    model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["score", str(model), str(data), "--platform", "fast"]) == 0
    lines = capsys.readouterr().out.splitlines()
    with Store.open(data) as store:
        programs = set(store.table(["program_id"])["program_id"].to_pylist())
    assert {line.split("\t")[2] for line in lines} == programs
    assert all(float(line.split("\t")[0]) < 100 for line in lines)


def test_one_platform_is_asked_for_by_name(
    model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--platform" in _refused(capsys, "eval", str(model), "--data", str(data))
    assert "--platform" in _refused(capsys, "score", str(model), str(data))
    said = _refused(capsys, "eval", str(model), "--data", str(data), "--platform", "fats")
    assert "did you mean 'fast'" in said


def _train(data: Path, out: Path, *more: str) -> tuple[str, ...]:
    return ("train", "tlp", "--data", str(data), "--out", str(out), *QUICK, *more)


def test_features_beside_the_language(data: Path, tmp_path: Path) -> None:
    one = ("--platform", "fast", "--features", "both", "--set", "knots=3", "--set", "epochs=1")
    assert run(list(_train(data, tmp_path / "m", *one))) == 0
    section = json.loads((tmp_path / "m" / "config.json").read_text())["section"]
    assert section["spec"]["physics"] is True and section["knots"] == 3


@pytest.mark.parametrize("kind", ["physics", "ensemble"])
def test_other_kinds_in_one_command(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "ensemble":
        pytest.importorskip("lightgbm")
    with Store.open(tmp_path / "store", create=True) as store:
        store.ingest(cpu_measurements(("lake-1c", "lake-2c")))
    few = ["--set", "steps=4", "--set", "width=16"]
    if kind == "ensemble":
        few += ["--set", "trees=3", "--preset", "ship", "--platform", "lake-2c"]
    where = ["--data", str(tmp_path / "store"), "--out", str(tmp_path / "m"), "--device", "cpu"]
    assert run(["train", kind, *where, *few]) == 0
    out, err = capsys.readouterr()
    assert f"tensorese tune --model {tmp_path / 'm'}" in out
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["kind"] == kind and "lake-2c" in config["card"]["targets"]
    assert config["card"]["command"].startswith("tensorese")
    if kind == "ensemble":
        assert config["platforms"] == ["lake-2c"] and "also learnt from lake-1c" in err
    else:
        assert "lake-1c held-out top1" in config["card"]["metrics"]


@pytest.mark.parametrize(
    ("kind", "arguments", "says"),
    [
        ("tlp", ["--preset", "paper", "--set", "width=512"], "the preset paper is the published"),
        ("tlp", ["--preset", "paper", "--features", "both"], "the preset paper is the published"),
        ("tlp", ["--set", "knots=3"], "--set knots has no effect here: it needs --features both"),
        ("tlp", ["--preset", "ship"], "--preset of tlp is one of default, paper, but got 'ship'"),
        ("physics", ["--preset", "ship"], "--preset of physics is one of default, but got 'ship'"),
        ("ensemble", ["--preset", "paper"], "--preset of ensemble is one of default, ship, but"),
        ("mtl-tlp", ["--preset", "papre"], "did you mean 'paper'"),
        ("physics", ["--features", "both"], "--features is for tlp and mtl-tlp, but physics reads"),
        ("ensemble", ["--features", "language"], "--features is for tlp and mtl-tlp, but ensemble"),
        ("physics", ["--set", "trees=3"], "--set takes a known setting, but got 'trees'"),
        ("physics", ["--device", "cuda:99"], "--device cuda:99 needs a CUDA device"),
    ],
)
def test_what_a_kind_does_not_take(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    arguments: list[str],
    says: str,
) -> None:
    if "--device" in arguments and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    where = ["--data", str(data), "--platform", "fast", "--out", str(tmp_path / "m")]
    assert says in _refused(capsys, "train", kind, *where, *arguments)
    assert not (tmp_path / "m").exists()


def test_a_run_goes_on_from_another_model(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "m"
    more = ("--platform", "slow", "--init", str(model), "--freeze", "all-but-head")
    quick = ("--data", str(data), "--out", str(out), "--set", "epochs=1", "--device", "cpu")
    assert run(["train", "tlp", *quick, *more]) == 0
    assert f"went on from {model}; left as it was: all but the head" in capsys.readouterr().err
    one, both = (json.loads((path / "config.json").read_text()) for path in (out, model))
    assert one["platforms"] == ["slow"] and one["section"]["width"] == both["section"]["width"]
    learnt = [set(config["card"]["training_workloads"]) for config in (one, both)]
    assert learnt[0] >= learnt[1]
    # Of the two that the other model was not trained on, all are judged.
    assert one["card"]["metrics"]["slow held-out tasks"] == 2


@pytest.mark.parametrize(
    ("kind", "arguments", "says"),
    [
        ("tlp", ["--freeze", "encoder"], "--freeze is for a run that goes on from a model; name"),
        ("tlp", ["--init", "MODEL", "--freeze", "head"], "of tlp is one of none, encoder, all-but"),
        ("physics", ["--init", "MODEL", "--freeze", "encoder"], "one of none, all-but-head, but"),
        ("physics", ["--init", "MODEL"], "MODEL is mtl-tlp and this physics; train mtl-tlp"),
        ("ensemble", ["--init", "MODEL"], "--init is for kinds that are one network, but ensemble"),
        ("tlp", ["--init", "nowhere"], "a model is a folder with"),
        ("tlp", ["--init", "MODEL", "--set", "width=24"], "but width is 16 there and 24 here"),
        ("tlp", ["--init", "MODEL", "--preset", "paper"], "but style is live there and paper here"),
        ("tlp", ["--init", "MODEL", "--features", "both"], "but these are language and the rec"),
    ],
)
def test_a_model_that_cannot_be_gone_on_from(
    model: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    arguments: list[str],
    says: str,
) -> None:
    where = ["--data", str(data), "--platform", "fast", "--out", str(tmp_path / "m")]
    named = [str(model) if one == "MODEL" else one for one in arguments]
    assert says.replace("MODEL", str(model)) in _refused(capsys, "train", kind, *where, *named)
    assert not (tmp_path / "m" / "config.json").exists()


def test_an_empty_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store.open(tmp_path / "empty", create=True)
    assert "holds none" in _refused(capsys, *_train(tmp_path / "empty", tmp_path / "m"))


def test_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere" in _refused(capsys, *_train(tmp_path / "nowhere", tmp_path / "m"))


def test_one_task_cannot_be_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = _store(tmp_path / "one", tasks=1)
    assert "two workloads" in _refused(capsys, *_train(store, tmp_path / "m"))


def test_all_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = _store(tmp_path / "failed", failing=1.1)
    assert "records failed" in _refused(capsys, *_train(store, tmp_path / "m"))
    assert not (tmp_path / "m").exists()


@pytest.mark.shared
def test_all_failed_public_records(
    tmp_path: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shared_data / "ansor" / "all_failed_cpu.json.zst"
    with Store.open(tmp_path / "failed", create=True) as store:
        store.ingest(read_ansor(path, "cpu", Skipped()))
    said = _refused(capsys, *_train(tmp_path / "failed", tmp_path / "m"))
    assert "7,296 records failed" in said


def test_unknown_platform_split_and_setting(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "m"
    said = _refused(capsys, *_train(data, out, "--platform", "fasst"))
    assert "did you mean 'fast'" in said
    said = _refused(capsys, *_train(data, out, "--platform", "fast", "--split", "by-worklod"))
    assert "did you mean 'by-workload'" in said
    said = _refused(capsys, *_train(data, out, "--platform", "fast", "--set", "widht=3"))
    assert "did you mean 'width'" in said
    said = _refused(capsys, *_train(data, out, "--platform", "fast", "--set", "epochs=many"))
    assert "takes a int" in said
    assert "key=value" in _refused(capsys, *_train(data, out, "--set", "epochs"))


def test_two_platforms_need_mtl(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "use mtl-tlp" in _refused(capsys, *_train(data, tmp_path / "m"))


def test_damaged_foreign_and_pickled_models(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ("--data", str(data))
    pickled = tmp_path / "model.pt"
    pickled.write_bytes(pickle.dumps([1]))
    assert "pickle" in _refused(capsys, "eval", str(pickled), *ask)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text('{"model_type": "bert"}')
    assert "another program" in _refused(capsys, "eval", str(foreign), *ask)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for part in model.iterdir():
        (damaged / part.name).write_bytes(part.read_bytes())
    (damaged / "model.safetensors").write_bytes(b"x")
    assert "damaged" in _refused(capsys, "score", str(damaged), str(data))


def test_nothing_left_to_judge(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "all"
    arguments = _train(data, out, "--platform", "fast", "--fold", "-1")
    assert run(list(arguments)) == 0
    capsys.readouterr()
    assert "unseen workloads" in _refused(capsys, "eval", str(out), "--data", str(data))


def test_help_imports_no_torch() -> None:
    code = "import sys, tensorese.cli as c; c.run(['-h']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for verb in ("train", "eval", "score"):
        assert verb in done.stdout


def test_split_by_network_needs_networks(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["train", "tlp", "--data", str(data), "--platform", "fast", "--out", str(tmp_path)]
    said = _refused(capsys, *where, "--split", "by-network")
    assert "do not say; give --networks FILE" in said
    file = tmp_path / "networks.json"
    file.write_text('{"net": ["w"]}')
    said = _refused(
        capsys, *where, "--split", "by-network", "--networks", str(file), "--hold-out", "nat"
    )
    assert "did you mean 'net'" in said
