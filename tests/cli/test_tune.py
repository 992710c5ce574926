"""`tensorese tune` as a stranger types it, on a model small enough to tune for real."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorese.cli import run as run_cli
from tensorese.deploy import compile as compiling
from tensorese.deploy import load
from tensorese.records.store import Store
from tensorese.targets import Target

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, a product: exported by the user, as a user would."""
    from tensorese.tvm_env import import_tvm

    import_tvm()
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 16)]
    program = torch.export.export(nn.Sequential(*layers).eval(), (torch.randn(1, 3, 8, 8),))
    path = tmp_path_factory.mktemp("model") / "small.pt2"
    torch.export.save(program, path)
    return path


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "tensorese", "tune", *map(str, arguments), "--json"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def events_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def finish(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    events = list(events_of(process))
    assert process.stderr is not None
    errors = process.stderr.read()
    assert process.wait() == 0, errors
    return events


def until(process: subprocess.Popen[str], kind: str, n: int = 1) -> dict[str, Any]:
    for event in events_of(process):
        if event["event"] == kind:
            n -= 1
            if not n:
                return event
    assert process.stderr is not None
    raise AssertionError(f"ended without {kind}: {process.stderr.read()}")


def trials_in(run: Path) -> int:
    with Store.open(run / "store") as store:
        return sum(m.origin != "finalist" for m in store.measurements())


@pytest.mark.slow
def test_from_an_exported_model_to_a_library(model: Path, tmp_path: Path) -> None:
    check_library(model, tmp_path / "run", lambda *arguments: finish(start(*arguments)))


def test_the_same_in_this_process_with_one_round_of_timing(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "Timing", partial(compiling.Timing, rounds=1, secs=0.05))

    def tuned(*arguments: str | Path) -> list[dict[str, Any]]:
        assert run_cli(["tune", *map(str, arguments), "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    check_library(model, tmp_path / "run", tuned)


def check_library(model: Path, out: Path, tuned: Callable[..., list[dict[str, Any]]]) -> None:
    events = tuned(model, "--trials", "16", "--model", "none", "--out", out)
    kinds = [event["event"] for event in events]
    assert kinds[0] == "start" and kinds[-1] == "run"
    assert "batch" in kinds and "best" in kinds and "end" in kinds
    last = events[-1]
    assert (last["state"], last["trials"]) == ("finished", 16)
    assert all(v["passed"] for v in last["certificate"]["verification"]["against"].values())
    names = {path.name for path in out.iterdir()}
    assert {"run.json", "batches.jsonl", "best.json", "report.html", "certificate.json"} <= names
    again = tuned(model, "--trials", "16", "--model", "none", "--out", out, "--no-compile")
    assert again[0]["known"] == again[-1]["trials"] == trials_in(out) == 16
    assert not [event for event in again if event["event"] == "batch"]


def test_a_library_in_seconds_and_nothing_measured(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run_cli(["tune", str(model), "--trials", "0", "--out", str(out)]) == 0
    said = capsys.readouterr()
    for line in (
        r"nothing is measured: .* chooses",
        r"tuning small: \d+ tasks on .*, measuring nothing",
        r"x1: not timed, from (evolution|store)",
    ):
        assert re.search(line, said.err), line
    for line in (
        r"programs chosen for \d+ tasks with 0 trials in \d+ s \(nothing was measured\)",
        r"nothing was timed to choose \d+ programs: the model that chose them speaks for",
        r"the library was not timed: tensorese bench",
        r"outputs agree with torch: ",
    ):
        assert re.search(line, said.out), line
    certificate = json.loads((out / "certificate.json").read_text())
    assert "latency" not in certificate and "kernels" not in certificate
    assert certificate["verification"]["against"]["torch"]["passed"]
    assert set(certificate["unmeasured"]["programs"]) == set(certificate["tasks"]["tuned"])
    assert certificate["database"]["records"] == 0
    assert not list((out / "store").glob("journal*"))
    report = (out / "report.html").read_text()
    assert "Nothing was timed to choose" in report and "not timed, from" in report
    x = np.ones((1, 3, 8, 8), np.float32)
    assert np.isfinite(load(out)(x)).all()


def test_a_library_for_a_machine_that_is_not_here(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = "emeraldrapids" if Target.parse("host").mcpu != "emeraldrapids" else "znver5"
    target = json.dumps({"kind": "llvm", "mcpu": elsewhere, "num-cores": 8})
    arguments = ["tune", str(model), "--trials", "0", "--target", target, "--json"]
    assert run_cli([*arguments, "--out", str(tmp_path / "run")]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    certificate = events[-1]["certificate"]
    assert f"of {elsewhere}" in certificate["verification"]["skipped"]
    assert certificate["verification"]["against"] == {}
    assert events[-1]["latencies"] == {} and events[-1]["chosen"]
    assert (tmp_path / "run" / "library.so").stat().st_size > 0
    assert "were not verified: this machine" in (tmp_path / "run" / "report.html").read_text()


def test_ctrl_c_ends_well_and_the_same_command_goes_on(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = (model, "--model", "none", "--out", out, "--no-compile", "--trials")
    process = start(*options, "5000")
    until(process, "batch", 2)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    rest = list(events_of(process))
    assert process.wait() == 130
    assert time.monotonic() - begun < 60
    assert rest[-1]["state"] == "interrupted"
    head = json.loads((out / "run.json").read_text())
    assert head["state"] == "interrupted" and head["seconds"] > 0
    assert json.loads((out / "best.json").read_text())
    before = trials_in(out)
    assert before >= rest[-1]["trials"] > 0
    events = finish(start(*options, str(before + 20)))
    assert events[-1]["trials"] == trials_in(out) == before + 20
    with Store.open(out / "store") as store:
        programs = [m.program.id for m in store.measurements() if m.origin != "finalist"]
    assert len(set(programs)) == len(programs), "nothing was measured twice"


@pytest.mark.slow  # quickly: search/loop/test_tuner.py kills a run that replays
def test_killed_nothing_that_was_told_is_lost(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = (model, "--model", "none", "--out", out, "--no-compile", "--trials")
    process = start(*options, "5000")
    told = until(process, "batch", 3)["trials"]
    process.kill()
    process.wait()
    stored = trials_in(out)
    assert stored >= told > 0
    events = finish(start(*options, str(stored + 10)))
    assert events[0]["known"] >= told
    assert events[-1]["trials"] == trials_in(out) == stored + 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["zoo:resnet81", "--trials", "4"], "the zoo has no network 'resnet81'"),
        (["no_such_file.onnx", "--trials", "4"], "a model must be a file"),
        (["zoo:resnet18", "--trials", "-1"], "--trials must not be negative"),
        (["zoo:resnet18", "--trials", "0", "--minutes", "5"], "but --trials 0 measures nothing"),
        (["zoo:resnet18", "--trials", "0", "--model", "none"], "but got --model none"),
        (["zoo:resnet18", "--trials", "0", "--target", "metal"], "a target must be"),
        (["zoo:resnet18", "--minutes", "-1"], "--minutes must be positive"),
        (["zoo:resnet18", "--target", "cuda", "--trials", "4"], "needs a CUDA device"),
        (["zoo:resnet18", "--target", "cuda:h200", "--trials", "4"], "needs such a device"),
        (["zoo:resnet18", "--model", "no_such_folder"], "--model must be auto, none or"),
        (["zoo:resnet18", "--warm", "no_such_store"], "--warm must name a run"),
    ],
)
def test_refusals_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["tune", *arguments, "--out", str(tmp_path / "run")]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1 and said in errors[0]
    assert not (tmp_path / "run").exists()


def test_a_run_of_another_model_and_a_hopeless_folder_are_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    head = {
        "version": 1,
        "model": "zoo:vgg16",
        "tasks": [{"workload": "aaaa"}],
        "target": "{}",
        "platform": "elsewhere",
        "environment": {"toolchain": {}},
        "state": "finished",
        "seconds": 1.0,
    }
    (tmp_path / "run" / "run.json").write_text(json.dumps(head))
    for out, said in ((tmp_path / "run", "zoo:vgg16"), (Path("/proc/tune"), "/proc/tune")):
        code = run_cli(["tune", str(model), "--trials", "4", "--model", "none", "--out", str(out)])
        errors = capsys.readouterr().err.strip().splitlines()
        assert code == 2
        assert said in errors[-1] and errors[-1].startswith("tensorese: ")
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == head


def test_help_says_what_limits_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["tune", "--help"]) == 0
    text = capsys.readouterr().out
    assert "With neither, it ends after 10 minutes" in " ".join(text.split())


def test_a_known_network_at_several_shapes(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice from a file with an open shape: the second run says what it knew and from where."""
    onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
    monkeypatch.setenv("TENSORESE_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(compiling, "Timing", partial(compiling.Timing, rounds=1, secs=0.05))
    monkeypatch.setattr(compiling, "quick", lambda: [])
    make = onnx.helper
    values = [make.make_tensor_value_info(name, 1, ["n", 64]) for name in "xy"]
    weight = onnx.numpy_helper.from_array(np.eye(64, dtype=np.float32), "w")
    node = make.make_node("MatMul", ["x", "w"], ["y"])
    graph = make.make_graph([node], "g", values[:1], values[1:], [weight])
    path = tmp_path / "m.onnx"
    opsets = [make.make_opsetid("", 17)]
    onnx.save(make.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    command = ["tune", str(path), "--shape", "x={4,16}x64", "--trials", "12", "--model", "none"]
    assert run_cli([*command, "--out", str(tmp_path / "a"), "--no-compile"]) == 0
    assert run_cli([*command, "--out", str(tmp_path / "b")]) == 0
    printed = capsys.readouterr().out
    assert "2 tasks were known from 12 trials of earlier runs" in printed
    assert "x: 4x64:" in printed and "x: 16x64:" in printed
    certificate = json.loads((tmp_path / "b" / "certificate.json").read_text())
    assert sum(row["trials"] for row in certificate["known"].values()) == 12
    found_by = {row["found_by"] for row in certificate["known"].values()}
    assert found_by == {str((tmp_path / "a").resolve())}
    assert "One library for 2 shapes" in (tmp_path / "b" / "report.html").read_text()
    for n in (16, 4):
        x = np.random.default_rng(n).standard_normal((n, 64), np.float32)
        assert np.allclose(load(tmp_path / "b")(x), x, atol=1e-5)
