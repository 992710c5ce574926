"""`eval`, `score` and `compare` on made-up records: what they print and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from models_support import MAKERS, ensemble_model, physics_model

from cpu_records_support import cpu_measurements
from lowered_support import keep_made_up
from tensorese.cli import run
from tensorese.evaluation.lowered_programs import ready_for
from tensorese.features.programs import read_programs
from tensorese.models.base import Card, kinds, save_model
from tensorese.records.store import Store

pytestmark = pytest.mark.null

PLATFORMS = ("lake-1c", "lake-2c")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records") / "store"
    with Store.open(folder, create=True) as store:
        store.ingest(cpu_measurements(PLATFORMS, tasks=4, split="test"))
    keep_made_up(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "both"
    return save_model(folder, ensemble_model(PLATFORMS), Card())


def _refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert run(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("tensorese: ")
    return said.err.splitlines()[-1]


def test_eval_prints_both_figures_and_who_loses(
    store: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["eval", str(model), "--data", str(store), "--platform", "lake-1c"]
    assert run(arguments) == 0
    assert "every task counts once" in capsys.readouterr().out
    with Store.open(store) as opened:
        tasks = list(opened.workloads())
    file = tmp_path / "networks.json"
    file.write_text(json.dumps({"net": {task: 2 for task in tasks[:3]}}))
    assert run([*arguments, "--networks", str(file)]) == 0
    out = capsys.readouterr().out
    assert "4 unseen tasks" in out and "net  top-1 0." in out and "3 tasks" in out
    assert "1 tasks that the list does not name" in out and "of the loss  net, 2 times: " in out
    assert run([*arguments, "--networks", str(file), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["weighted"] and result["networks"][0]["tasks"] == 3


def test_compare_prints_a_table_and_rows(
    store: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["compare", "--data", str(store), "--model", str(model)]
    assert run([*arguments, "--platform", "lake-1c"]) == 0
    out = capsys.readouterr().out
    assert "random order" in out and "pooled top-1" in out and "lake-2c" not in out
    assert run([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    systems = [(row["platform"], row["system"]) for row in rows]
    assert systems == [(p, s) for p in PLATFORMS for s in ("random order", "both")]
    assert all("top1_pooled" in row for row in rows)


@pytest.mark.parametrize("kind", kinds())
def test_score_prints_every_program_by_any_kind(
    kind: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(store) as opened:
        programs = read_programs([opened], split="all")
        made = MAKERS[kind](programs.spec(), "cpu", PLATFORMS)
        programs = ready_for([made.needs], programs, [opened])
    folder = save_model(tmp_path / kind, made, Card())
    capsys.readouterr()
    assert run(["score", str(folder), str(store), "--platform", "lake-1c"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {name for _, _, name in lines} == set(programs.ids) and len(lines) == len(programs)
    assert {task for _, task, _ in lines} == set(programs.tasks)
    scores = made.rank(made.read_all(programs), "lake-1c").tolist()
    assert [float(score) for score, _, _ in lines] == pytest.approx(scores, abs=1e-4)


def test_a_model_that_is_not_there(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = str(tmp_path / "nowhere")
    data = ("--data", str(store))
    for verb in (("eval", nowhere, *data), ("score", nowhere, str(store))):
        assert "nowhere does not exist; train one" in _refused(capsys, *verb)
    assert "does not exist" in _refused(capsys, "compare", *data, "--model", nowhere)


def test_another_platform(store: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, other = ("--data", str(store)), ("--platform", "lake-1d")
    for verb in (
        ("eval", str(model), *data),
        ("score", str(model), str(store)),
        ("compare", *data, "--model", str(model)),
    ):
        assert "did you mean 'lake-1c'" in _refused(capsys, *verb, *other)
    assert "name one: --platform" in _refused(capsys, "eval", str(model), *data)
    assert "name --platform" in _refused(capsys, "score", str(model), str(store))


def test_networks_that_cannot_be_used(
    store: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged, foreign = tmp_path / "damaged.json", tmp_path / "foreign.json"
    damaged.write_text("{")
    foreign.write_text('{"net": ["w"]}')
    for verb in (
        ("eval", str(model), "--data", str(store), "--platform", "lake-1c"),
        ("compare", "--data", str(store), "--model", str(model)),
    ):
        assert "is neither" in _refused(capsys, *verb, "--networks", str(damaged))
        assert "names none of the 4" in _refused(capsys, *verb, "--networks", str(foreign))
        assert "is no file" in _refused(capsys, *verb, "--networks", str(tmp_path / "none"))


def test_compare_refuses_what_it_cannot_judge(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = _refused(capsys, "compare", "--data", str(tmp_path / "none"))
    assert "none" in missing
    with Store.open(store) as opened:
        card = Card(training_workloads=tuple(opened.workloads()))
    folder = save_model(tmp_path / "cheat", physics_model(PLATFORMS), card)
    said = _refused(capsys, "compare", "--data", str(store), "--model", str(folder))
    assert "cheat was trained on 4 of these 4" in said


def test_the_former_name_says_where_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    assert "`tensorese compare`" in _refused(capsys, "bench-models", "--json")


def test_judging_a_model_of_trees_and_networks_imports_no_torch(store: Path, model: Path) -> None:
    judge = ["eval", str(model), "--data", str(store), "--platform", "lake-1c"]
    table = ["compare", "--data", str(store), "--model", str(model)]
    code = f"import sys; from tensorese.cli import run; run({judge}); run({table}); "
    code += "print(sys.modules.keys() & {'torch', 'tvm'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")
