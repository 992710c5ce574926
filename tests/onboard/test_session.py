"""The whole of `tensorese onboard`: probes chosen, built, timed and learnt from on this machine."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tensorese.cli import run
from tensorese.collect.tasklist import ListedTask, write_tasks
from tensorese.identity import workload_of
from tensorese.models.catalog import choose
from tensorese.onboard import adapt, session
from tensorese.records.store import Store
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm

SIZES = (24, 32, 40, 48, 56, 64, 80, 96, 112)


def product(n: int) -> Any:
    tvm = import_tvm()
    te = tvm.te
    a, b = te.placeholder((n, 64), name="a"), te.placeholder((64, n), name="b")
    r = te.reduce_axis((0, 64), name="r")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return tvm.IRModule({"main": te.create_prim_func([a, b, c])})


def products(path: Path) -> Path:
    """A list of small matrix products."""
    tasks = [
        ListedTask(
            workload=workload_of(product(n)),
            kind="llvm",
            operator="dense",
            name=f"product{n}",
            flops=2.0 * n * n * 64,
        )
        for n in SIZES
    ]
    write_tasks(path, tasks)
    return path


def test_a_platform_is_taught_in_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four probes a task, few steps, few trees: the same way with less on it."""
    monkeypatch.setattr(session, "PER_MINUTE", 1)
    monkeypatch.setattr(session, "learn", partial(session.learn, quick=True))
    monkeypatch.setattr(adapt, "TREES", 10)
    monkeypatch.setattr(adapt, "FOLDS", 2)
    monkeypatch.setattr(adapt, "VARIANTS", {"head": replace(adapt.VARIANTS["head"], steps=100)})
    check_onboarding(tmp_path, capsys, minutes="5")  # it ends when four of each are measured


@pytest.mark.slow
def test_a_platform_is_taught_in_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_onboarding(tmp_path, capsys)


def check_onboarding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], minutes: str = "0.6"
) -> None:
    tasks, folder = products(tmp_path / "tasks.parquet"), tmp_path / "models" / "here"
    command = ["onboard", "--tasks", str(tasks), "--platform", "here", "--out", str(folder)]
    assert run([*command, "--minutes", minutes, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tasks"] >= 1 and 0 < told["after"]["1"] <= 1
    with Store.open(folder / "store") as store:
        measured = list(store.measurements())
    assert {m.platform.name for m in measured} == {"here"}
    assert all(m.origin.startswith("probe:") for m in measured)
    found = choose(Target.parse("host").platform("here"), [folder.parent])
    assert found is not None and found.folder == folder and found.head == "here"
