"""Which tasks are collected: the test networks' never in training, no class too large."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tensorese.collect import zoo_tasks
from tensorese.collect.tasklist import ListedTask, TaskListError, read_tasks
from tensorese.collect.zoo_tasks import (
    TEST_NETWORKS,
    TRAIN_PARTS,
    TaskSelection,
    choose_train,
    zoo_part,
)
from tensorese.records.nouns import TensorSpec, Workload
from tensorese.targets import Target
from tensorese.workloads.zoo import parse

pytestmark = pytest.mark.null

LIST = Path(__file__).parents[2] / "data" / "tasks.parquet"


def task(size: int, operator: str, network: str = "net", kind: str = "llvm") -> ListedTask:
    spec = TensorSpec(shape=(size,), dtype="float32")
    workload = Workload(operator=operator, args=(spec,), attributes={"class": operator})
    return ListedTask(
        workload=workload, kind=kind, operator=operator, flops=1e6, networks=((network, 1),)
    )


def test_a_workload_of_a_test_network_is_barred_whichever_network_it_came_from() -> None:
    shared = task(1, "dense", "train_net")
    test = [replace(shared, networks=(("test_net", 1),), split="test")]
    chosen = choose_train([shared, task(2, "dense")], test)
    assert [t.workload.args[0].shape[0] for t in chosen] == [2]
    with pytest.raises(TaskListError, match="every one is a test task's"):
        choose_train([shared], test)


def test_no_class_exceeds_its_share_and_light_classes_are_few() -> None:
    found = [task(n, "conv2d", f"net{n % 5}") for n in range(1, 60)]
    found += [task(n, "dense") for n in range(1, 11)] + [task(n, "pool") for n in range(1, 31)]
    chosen = choose_train(found, [], TaskSelection(shares=(("conv2d", 0.4),), most_light=5))
    counts = Counter(t.operator for t in chosen)
    assert counts["pool"] == 5
    assert counts["dense"] == 10
    assert counts["conv2d"] == 10  # 0.4 of 25
    assert len({t.networks[0][0] for t in chosen if t.operator == "conv2d"}) == 5


def test_heavy_tasks_are_left_out() -> None:
    heavy = replace(task(1, "conv2d"), flops=1e12)
    assert heavy not in choose_train([heavy, task(2, "dense")], [])


def test_every_network_named_is_in_the_zoo() -> None:
    named = [spec for part in TRAIN_PARTS for spec in part]
    for spec in (*named, *TEST_NETWORKS):
        parse(spec)
    assert len(set(named)) == len(named)
    assert not set(named) & set(TEST_NETWORKS)


def test_a_later_part_adds_to_the_earlier_and_changes_none_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {
        "first": [task(1, "dense"), *(task(n, "conv2d") for n in range(1, 9))],
        "second": [task(1, "dense"), task(2, "dense"), task(3, "dense")],
    }
    monkeypatch.setattr(zoo_tasks, "extract", lambda spec, targets, split="": found.get(spec, []))
    listed = []
    for parts in ((("first",),), (("first",), ("second",))):
        monkeypatch.setattr(zoo_tasks, "TRAIN_PARTS", parts)
        listed.append([t.workload.id for t in zoo_part("train", [Target(kind="llvm")])])
    before, after = listed
    assert after[: len(before)] == before
    assert after[len(before) :] == [t.workload.id for t in found["second"][1:]]


@pytest.mark.parametrize("kind", ["llvm", "cuda"])
def test_the_committed_list_keeps_its_promises(kind: str) -> None:
    tasks = [t for t in read_tasks(LIST) if t.kind == kind]
    test = {t.workload.id for t in tasks if t.split == "test"}
    train = [t for t in tasks if t.split != "test"]
    assert not test & {t.workload.id for t in train}
    assert {name for t in tasks if t.split for name, _ in t.networks} == set(TEST_NETWORKS)
    assert len({t.workload.id for t in train}) == len(train) >= 200
    assert len({name.partition("@")[0] for t in train for name, _ in t.networks}) >= 10
    counts = Counter(t.operator for t in train)
    assert max(counts.values()) <= 0.4 * len(train)
    wanted = {"conv2d", "depthwise_conv2d", "grouped_conv2d", "conv3d", "conv2d_transpose"}
    wanted |= {"dense", "batch_matmul", "softmax", "norm", "pool", "reduce", "elementwise"}
    assert wanted <= set(counts)
