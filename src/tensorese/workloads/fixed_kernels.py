"""Kernels with one schedule, written by hand: there is nothing to tune about them."""

from __future__ import annotations

from typing import Any

from tensorese.workloads.attention_kernels import is_attention
from tensorese.workloads.winograd_kernels import is_transform, transform_schedule


def is_fixed(module: Any) -> bool:
    return is_attention(module) or is_transform(module)


def fixed_schedule(module: Any) -> Any:
    return module if is_attention(module) else transform_schedule(module)
