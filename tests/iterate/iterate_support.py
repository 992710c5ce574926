"""Small tasks as a list, for what writes and measures programs in rounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tensorese.collect.tasklist import ListedTask, read_tasks, write_tasks
from tensorese.targets import Target

TARGET = '{"kind":"llvm","num-cores":1}'
PLATFORM = "emeraldrapids-1c"
"""One that a shipped model knows."""
TASKS = Path(__file__).parents[2] / "data" / "tasks.parquet"


def small_tasks(
    n: int, *, split: str = "", operators: Sequence[str] = ("dense",)
) -> list[ListedTask]:
    """The first tasks of a kind of operator for CPUs."""
    tasks = [
        task
        for task in read_tasks(TASKS)
        if task.kind == "llvm" and task.split == split and task.operator in operators
    ]
    return sorted(tasks, key=lambda task: task.workload.id)[:n]


def task_list(path: Path, tasks: Sequence[ListedTask]) -> Path:
    write_tasks(path, tasks)
    return path


def micro_model(
    path: Path, platform: str = PLATFORM, *, target: str = TARGET, seed: int = 0
) -> Path:
    """A model that writes and has learnt nothing."""
    import torch

    from tensorese.models.base import Card, save_model
    from tensorese.models.tlm import TLM, TLMConfig, TLMNetwork

    torch.manual_seed(seed)
    network = TLMNetwork(TLMConfig(width=16, layers=1, heads=1))
    target = Target.parse(target).to_json()
    save_model(path, TLM(network, {platform: target}), Card(targets={platform: target}))
    return path
