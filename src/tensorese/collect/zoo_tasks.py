"""Which tasks of the zoo are collected: training networks at several shapes, test ones apart.

No workload of a test network is in the training part, whichever network it was found in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tensorese.collect.tasklist import ListedTask, TaskListError, merge_tasks
from tensorese.targets import Target
from tensorese.workloads.zoo import parse

TEST_NETWORKS = (
    "resnet50@1x3x224x224",
    "mobilenet_v2@1x3x224x224",
    "resnext50_32x4d@1x3x224x224",
    "bert_base@1x128",
    "bert_tiny@1x128",
)
# Several sides and lengths each: different shapes add more than a second network would.
TRAIN_NETWORKS = (
    "resnet18@1x3x224x224",
    "resnet18@1x3x192x192",
    "resnet18@1x3x160x160",
    "resnet18@4x3x112x112",
    "wide_resnet50_2@1x3x160x160",
    "mobilenet_v3_large@1x3x224x224",
    "mobilenet_v3_large@1x3x192x192",
    "mobilenet_v3_large@1x3x160x160",
    "mobilenet_v3_large@4x3x128x128",
    "densenet121@1x3x192x192",
    "inception_v3@1x3x299x299",
    "inception_v3@1x3x203x203",
    "vgg16@1x3x224x224",
    "r3d_18@1x3x8x112x112",
    "r3d_18@1x3x8x64x64",
    "r3d_18@1x3x4x80x80",
    "dcgan@1x100x1x1",
    "dcgan@4x100x1x1",
    "dcgan@8x100x1x1",
    "bert_medium@1x64",
    "bert_medium@1x128",
    "bert_medium@1x256",
    "bert_medium@4x64",
    "bert_large@1x64",
    "gpt2@1x64",
    "gpt2@1x192",
    "llama_12l@1x64",
    "llama_12l@1x128",
    # Only its grouped convolutions, a class no training network has; never at the test shape.
    "resnext50_32x4d@1x3x192x192",
    "resnext50_32x4d@1x3x160x160",
    "resnext50_32x4d@1x3x128x128",
)
# Twice the tasks add more than twice the programs; these are measured on one core first.
MORE_TRAIN_NETWORKS = (
    "efficientnet_b0@1x3x224x224",
    "efficientnet_b0@1x3x160x160",
    "mnasnet1_0@1x3x224x224",
    "mnasnet1_0@1x3x128x128",
    "mobilenet_v3_small@1x3x224x224",
    "mobilenet_v3_small@2x3x160x160",
    "regnet_x_400mf@1x3x224x224",
    "regnet_x_400mf@1x3x160x160",
    "squeezenet1_1@1x3x224x224",
    "squeezenet1_1@1x3x128x128",
    "deit_tiny@1x3x224x224",
    "deit_small@1x3x224x224",
    "deit_small@1x3x160x160",
    "bert_mini@1x128",
    "bert_mini@1x384",
    "bert_mini@8x32",
    "resnet18@1x3x128x128",
    "wide_resnet50_2@1x3x96x96",
    "densenet121@1x3x128x128",
    "inception_v3@1x3x171x171",
    "r3d_18@1x3x8x48x48",
    "dcgan@2x100x1x1",
    "gpt2@1x32",
    "llama_12l@1x32",
)
TRAIN_PARTS = (TRAIN_NETWORKS, MORE_TRAIN_NETWORKS)
"""In the order they were added: one is balanced beside those before it and changes none of them."""
_ONLY = {"resnext50_32x4d": ("grouped_conv2d",)}


@dataclass(frozen=True, kw_only=True)
class TaskSelection:
    """How many tasks of what make up a training part."""

    most_flops: float = 7e8
    """A slower program costs a CPU core too much of the measuring time."""
    shares: tuple[tuple[str, float], ...] = (("conv2d", 0.34),)
    """The largest share of the tasks that a class may have."""
    light: tuple[str, ...] = ("elementwise", "pool", "copy", "reduce", "gather")
    """Classes with little to decide: a handful of each is enough."""
    most_light: int = 8
    """Tasks of each light class."""


def extract(spec: str, targets: Sequence[Target], split: str = "") -> list[ListedTask]:
    """The tasks of `NAME[@shape]` of the zoo on each of the targets."""
    from tensorese.workloads import load_network, tasks_of

    network = load_network(f"zoo:{spec}")
    only = _ONLY.get(spec.partition("@")[0]) if not split else None
    return [
        ListedTask(
            workload=task.workload,
            kind=target.kind,
            operator=task.operator,
            name=task.name,
            flops=task.flops,
            networks=((spec, task.weight),),
            split=split,
        )
        for target in targets
        for task in tasks_of(network, target.to_json())
        if only is None or task.operator in only
    ]


def zoo_part(
    name: str, targets: Sequence[Target], on_network: Callable[[str], None] = lambda spec: None
) -> list[ListedTask]:
    """`train`, `test`, or one network of the zoo, extracted here; minutes for a whole part."""
    if name not in ("train", "test"):
        parse(name)  # a wrong name is refused before anything is printed
        on_network(name)
        return merge_tasks(extract(name, targets))
    test: list[ListedTask] = []
    for spec in TEST_NETWORKS:
        on_network(spec)
        test.extend(extract(spec, targets, split="test"))
    if name == "test":
        return merge_tasks(test)
    train: list[ListedTask] = []
    for part in TRAIN_PARTS:
        extracted: list[ListedTask] = []
        for spec in part:
            on_network(spec)
            extracted.extend(extract(spec, targets))
        train.extend(choose_train(extracted, [*test, *train]))
    return train


def choose_train(
    tasks: Iterable[ListedTask],
    test: Iterable[ListedTask],
    selection: TaskSelection | None = None,
) -> list[ListedTask]:
    """The training part: none of the test workloads, small enough, no class over its share."""
    selection = selection or TaskSelection()
    barred = {task.workload.id for task in test}
    merged = [
        task
        for task in merge_tasks(list(tasks))
        if task.workload.id not in barred and task.flops <= selection.most_flops
    ]
    chosen: list[ListedTask] = []
    for kind in sorted({task.kind for task in merged}):
        chosen.extend(_balanced([task for task in merged if task.kind == kind], selection))
    if not chosen:
        raise TaskListError("a training part must have tasks, but every one is a test task's")
    return chosen


def _balanced(tasks: list[ListedTask], selection: TaskSelection) -> list[ListedTask]:
    by_class: dict[str, list[ListedTask]] = {}
    for task in sorted(tasks, key=lambda task: (-task.flops, task.workload.id)):
        by_class.setdefault(task.operator, []).append(task)
    for operator in selection.light:
        if operator in by_class:
            by_class[operator] = _spread(by_class[operator], selection.most_light)
    shares = dict(selection.shares)
    others = sum(len(group) for operator, group in by_class.items() if operator not in shares)
    for operator, share in shares.items():
        if operator in by_class:
            most = math.floor(others * share / (1 - sum(shares.values())))
            by_class[operator] = _spread(by_class[operator], max(1, most))
    return [task for operator in sorted(by_class) for task in by_class[operator]]


def _spread(tasks: list[ListedTask], most: int) -> list[ListedTask]:
    """At most so many, taken from the networks in turn, the rarest shapes of each spread out."""
    if len(tasks) <= most:
        return tasks
    by_network: dict[str, list[ListedTask]] = {}
    for task in tasks:
        by_network.setdefault(task.networks[0][0], []).append(task)
    queues = [_strided(group) for _, group in sorted(by_network.items())]
    chosen: list[ListedTask] = []
    while len(chosen) < most:
        for queue in queues:
            if queue and len(chosen) < most:
                chosen.append(queue.pop(0))
    return chosen


def _strided(tasks: list[ListedTask]) -> list[ListedTask]:
    """Reordered so that any beginning of the list covers its whole range."""
    n = len(tasks)
    order = sorted(range(n), key=lambda i: (_bit_reversed(i, n), i))
    return [tasks[i] for i in order]


def _bit_reversed(i: int, n: int) -> int:
    bits = max(1, (n - 1).bit_length())
    return int(format(i, f"0{bits}b")[::-1], 2)


def class_counts(tasks: Iterable[ListedTask]) -> dict[str, int]:
    return dict(Counter(task.operator for task in tasks).most_common())
