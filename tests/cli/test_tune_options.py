"""What the options of `tune` and `compile` become."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tensorese import api, deploy
from tensorese.cli import run as run_cli
from tensorese.cli.compile import compile_command
from tensorese.cli.tune import tune
from tensorese.search.loop.tune_tasks import RunOutcome

pytestmark = pytest.mark.null


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def remember(model: str, inputs: Any, target: str, **options: Any) -> RunOutcome:
        found.update(options, model=model, target=target, inputs=inputs)
        return RunOutcome(
            path=tmp_path, state="finished", reason="", trials=0, seconds=0.0, winners={}
        )

    monkeypatch.setattr(api, "tune", remember)
    return found


def test_convolutions_may_go_by_winograd_unless_told(asked: dict[str, Any]) -> None:
    assert CliRunner().invoke(tune, ["zoo:resnet18"], standalone_mode=False).exception is None
    assert asked["winograd"]
    told = ["zoo:resnet18", "--no-winograd"]
    assert CliRunner().invoke(tune, told, standalone_mode=False).exception is None
    assert not asked["winograd"]


def test_attention_may_be_one_kernel_unless_told(asked: dict[str, Any]) -> None:
    assert CliRunner().invoke(tune, ["zoo:bert_tiny"], standalone_mode=False).exception is None
    assert asked["attention"]
    told = ["zoo:bert_tiny", "--no-attention"]
    assert CliRunner().invoke(tune, told, standalone_mode=False).exception is None
    assert not asked["attention"]


def test_weights_are_packed_and_out_of_the_near_caches_unless_told(asked: dict[str, Any]) -> None:
    assert CliRunner().invoke(tune, ["zoo:resnet18"], standalone_mode=False).exception is None
    assert (asked["prepack"], asked["cache"]) == (True, "rotated")
    told = ["zoo:resnet18", "--no-prepack", "--cache", "hot"]
    assert CliRunner().invoke(tune, told, standalone_mode=False).exception is None
    assert (asked["prepack"], asked["cache"]) == (False, "hot")


def test_a_proposer_is_chosen_by_name(asked: dict[str, Any]) -> None:
    assert CliRunner().invoke(tune, ["zoo:resnet18"], standalone_mode=False).exception is None
    assert asked["proposer"] == "evolution"
    chosen = ["zoo:resnet18", "--proposer", "annealing"]
    assert CliRunner().invoke(tune, chosen, standalone_mode=False).exception is None
    assert asked["proposer"] == "annealing"


def test_an_unknown_proposer_is_one_line_before_anything_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_cli(["tune", "no/such/model.onnx", "--proposer", "evolutoin"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("tensorese: --proposer must be one of") and "\n" not in said
    assert "did you mean 'evolution'?" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ray", "auto", "--rpc-tracker", "h:1"), "--ray and --rpc-tracker exclude each other"),
        (("--ray", "auto", "--trials", "0"), "nodes of the Ray cluster 'auto' are given; leave"),
        (("--ray", "nowhere"), "--ray must be HOST:PORT, auto or local, but got 'nowhere'"),
        (("--ray", "auto"), "pip install 'tensorese[ray]'"),
    ],
)
def test_a_cluster_is_refused_in_one_line(
    options: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run_cli(["tune", "no/such/model.onnx", *options]) == 2
    line = capsys.readouterr().err.strip()
    assert said in line and "\n" not in line


@pytest.mark.parametrize(("options", "packed"), [([], True), (["--unpacked"], False)])
def test_compile_packs_unless_told(
    options: list[str], packed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[bool] = []

    def remember(_run: Path, *, prepack: bool, **_: Any) -> dict[str, Any]:
        seen.append(prepack)
        return {}

    monkeypatch.setattr(deploy, "compile_run", remember, raising=False)
    result = CliRunner().invoke(compile_command, [str(tmp_path), "--json", *options])
    assert result.exit_code == 0 and seen == [packed]
