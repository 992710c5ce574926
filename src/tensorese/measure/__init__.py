"""Measuring: candidates in, measurements out. Names are imported when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorese.measure.base import Candidate, Measurer, Ticket
    from tensorese.measure.candidates import from_module, from_schedule, workload_of
    from tensorese.measure.config import FarmConfig
    from tensorese.measure.farm import Farm
    from tensorese.measure.replay import ReplayMeasurer
    from tensorese.measure.rpc import RpcMeasurer
    from tensorese.measure.timing import TimingConfig

_HOME = {
    "Candidate": "base",
    "Measurer": "base",
    "Ticket": "base",
    "from_module": "candidates",
    "from_schedule": "candidates",
    "workload_of": "candidates",
    "FarmConfig": "config",
    "Farm": "farm",
    "ReplayMeasurer": "replay",
    "RpcMeasurer": "rpc",
    "TimingConfig": "timing",
}

__all__ = [
    "Candidate",
    "Farm",
    "FarmConfig",
    "Measurer",
    "ReplayMeasurer",
    "RpcMeasurer",
    "Ticket",
    "TimingConfig",
    "from_module",
    "from_schedule",
    "workload_of",
]


def __getattr__(name: str) -> Any:
    """The foreman imports submodules of this package before TVM: nothing may come in early."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
