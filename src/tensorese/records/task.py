"""A task: a workload on a target, as often as a network runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensorese.records.nouns import Workload


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is tuned: unique by the workload's id."""

    name: str
    """The fused operators, `conv2d_add_relu`."""
    operator: str
    """Its class: `conv2d`, `dense`, `softmax`, ..."""
    workload: Workload
    target: str
    weight: int
    """How often the network runs it."""
    flops: float
    """Of one run, as TVM counts the program's own arithmetic."""
    module: Any
    """The unscheduled TIR, one function `main`: what MetaSchedule and a database see."""
