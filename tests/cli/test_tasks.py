from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tensorese.cli import run

pytestmark = pytest.mark.tvm


def test_tasks_of_a_zoo_network_as_a_table_and_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["tasks", "zoo:dcgan", "--no-space"]) == 0
    printed = capsys.readouterr().out
    assert "conv2d_transpose" in printed and "1x100x1x1" in printed
    assert printed.splitlines()[-1].startswith("dcgan: ")
    batched = ["tasks", "zoo:dcgan@2x100x1x1", "--target", "cuda:v100"]
    assert run([*batched, "--json", "--no-space"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["network"] == "dcgan" and '"sm_70"' in listed["target"]
    heavy = [row for row in listed["tasks"] if row["operator"] == "conv2d_transpose"]
    assert sum(row["weight"] for row in heavy) == 4  # the first, of stride 1, is a plain conv2d
    assert all(row["flops"] > 0 and len(row["workload"]) == 16 for row in heavy)
    assert "space" not in heavy[0]


def test_a_line_a_task_the_largest_first(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["tasks", "zoo:bert_tiny@1x16", "--no-space"]
    assert run(call) == 0
    everything = capsys.readouterr().out.splitlines()
    assert run([*call, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["tasks"]
    assert len(everything) == 1 + len(listed) + 1
    costs = [row["flops"] * row["weight"] for row in listed]
    assert costs == sorted(costs, reverse=True)
    shares = [float(line.split("%")[0]) for line in everything[1:-1]]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))
    longest = max(listed, key=lambda row: len(row["name"]))
    (line,) = [one for one in everything if f" {longest['name']} " in one][:1]
    assert line.rstrip().endswith(f"> {longest['shapes'][-1]}") or longest["dtype"] in line
    assert run([*call, "--top", "3"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split() for line in printed[:4]] == [line.split() for line in everything[:4]]
    assert printed[-1] == everything[-1]
    rest = 100 * sum(costs[3:]) / sum(costs)
    assert printed[4] == f"and {len(listed) - 3} more, {rest:.1f}% of the FLOPs"
    assert run([*call, "--top", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == listed[:3]


def test_what_libraries_print_stays_off_the_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def extracted(*_: Any, **__: Any) -> list[Any]:
        os.write(2, b"Warning: from C++\n")
        return []

    monkeypatch.setattr("tensorese.workloads.tasks_of_all", extracted)
    assert run(["tasks", "zoo:dcgan"]) == 0
    printed = capfd.readouterr()
    assert printed.err == "" and printed.out.splitlines()[-1].startswith("dcgan: 0 tasks")


def test_tasks_are_those_of_tune(capsys: pytest.CaptureFixture[str]) -> None:
    names = []
    for options in ([], ["--no-winograd"]):
        assert run(["tasks", "zoo:resnet18", "--no-space", "--json", *options]) == 0
        listed = json.loads(capsys.readouterr().out)["tasks"]
        names.append([row["operator"] for row in listed])
    assert "batch_matmul" in names[0] and "batch_matmul" not in names[1]


def test_the_space_of_each_task_is_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["tasks", "zoo:bert_tiny@1x16", "--target", "cuda:v100", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["tasks"]
    assert all(row["sketches"] >= 1 and row["replayed"] == 0 for row in listed)
    dense = max((r for r in listed if r["operator"] == "dense"), key=lambda r: r["flops"])
    assert dense["space"] > 10**6
    assert run(["tasks", "zoo:bert_tiny@1x16"]) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["share", "weight", "MFLOPs", "sketches", "space"]
    assert first.split()[3] == "3"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["zoo:dcgam"], "did you mean 'dcgan'?"),
        (["zoo:dcgan@1x1"], "Nx100x1x1"),
        (["nothing.onnx"], "must be a file"),
        (["zoo:dcgan", "--target", "cuda:v1000"], "did you mean 'v100'?"),
        (["zoo:dcgan", "--target", '{"kind":"abacus"}'], "no target kind 'abacus'"),
        (["zoo:dcgan", "--top", "0"], "0 is not in the range"),
        ([], "Missing argument 'MODEL'"),
    ],
)
def test_refusals_are_one_line_and_exit_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tasks", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("tensorese: ") and err.count("\n") == 1
    assert says in err


def test_a_file_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.onnx"
    path.write_text("not a model")
    assert run(["tasks", str(path)]) == 2
    assert "is no model" in capsys.readouterr().err
