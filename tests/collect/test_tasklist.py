"""Task lists: what is written is read, and what is none is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from measurements_support import MeasurementMaker
from tensorese.collect.tasklist import (
    ListedTask,
    TaskListError,
    load_tasks,
    merge_tasks,
    read_tasks,
    write_tasks,
)
from tensorese.records.nouns import TensorSpec, Workload
from tensorese.records.store import Store

pytestmark = pytest.mark.null


def listed(size: int = 8, kind: str = "llvm", **more: object) -> ListedTask:
    spec = TensorSpec(shape=(size, size), dtype="float32")
    workload = Workload(operator="matmul", args=(spec,), module='{"n":1}', key=str(size))
    task = ListedTask(workload=workload, kind=kind, operator="dense", flops=2.0 * size**3)
    return replace(task, **more)  # type: ignore[arg-type]


def test_a_list_comes_back_as_it_was_written(tmp_path: Path) -> None:
    tasks = [
        listed(8, networks=(("resnet18@1x3x64x64", 3),), name="matmul_relu"),
        listed(16, split="test"),
    ]
    write_tasks(tmp_path / "tasks.parquet", tasks)
    assert read_tasks(tmp_path / "tasks.parquet") == tasks


def test_a_list_is_read_for_one_kind_of_target(tmp_path: Path) -> None:
    path = tmp_path / "tasks.parquet"
    write_tasks(path, [listed(8), listed(16, kind="cuda")])
    assert [t.workload.args[0].shape[0] for t in load_tasks(path, "cuda")] == [16]
    write_tasks(path, [listed(8)])
    with pytest.raises(TaskListError, match="no tasks for cuda targets; it lists llvm"):
        load_tasks(path, "cuda")


def test_a_file_that_is_no_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(TaskListError, match=r"notes\.txt is none"):
        load_tasks(path, "llvm")
    with pytest.raises(TaskListError, match="does not exist"):
        load_tasks(tmp_path / "nothing", "llvm")


def test_a_store_gives_its_replayable_workloads(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    plain = make_measurement(size=32)
    workload = replace(plain.program.workload, module="{}")
    program = replace(plain.program, workload=workload)
    with Store.open(tmp_path / "s", create=True) as store:
        store.append(replace(make_measurement(size=64), split="test"))  # no module: not replayable
        store.append(replace(plain, program=program, split="test"))
    found = load_tasks(tmp_path / "s", "llvm")
    assert [(t.workload.id, t.split) for t in found] == [(workload.id, "test")]
    with pytest.raises(TaskListError, match="has none"):
        load_tasks(tmp_path / "s", "cuda")


def test_networks_that_share_a_task_are_joined_and_test_wins() -> None:
    one = listed(8, networks=(("a", 1),))
    two = listed(8, networks=(("b", 2),), split="test")
    merged = merge_tasks([one, two, listed(8, kind="cuda")])
    assert len(merged) == 2
    assert merged[0].networks == (("a", 1), ("b", 2))
    assert merged[0].split == "test"
