"""From a model to weighted tasks: ONNX, torch.export and the papers' networks."""

from __future__ import annotations

from tensorese.records.task import Task
from tensorese.workloads.errors import NetworkError
from tensorese.workloads.load import load_network
from tensorese.workloads.network import Input, Network
from tensorese.workloads.operators import operator_class
from tensorese.workloads.prepare import prepare
from tensorese.workloads.tasks import tasks_of, tasks_of_all
from tensorese.workloads.variants import load_variants, merged, source_of_all

__all__ = [
    "Input",
    "Network",
    "NetworkError",
    "Task",
    "load_network",
    "load_variants",
    "merged",
    "operator_class",
    "prepare",
    "source_of_all",
    "tasks_of",
    "tasks_of_all",
]
