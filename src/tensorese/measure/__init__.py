"""Measuring: candidates in, measurements out. Names are imported when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorese.identity import workload_of
    from tensorese.measure.base import Candidate, Measurer, Ticket
    from tensorese.measure.candidates import from_module, from_schedule
    from tensorese.measure.config import FarmConfig
    from tensorese.measure.farm import Farm
    from tensorese.measure.replay import ReplayMeasurer
    from tensorese.measure.rpc import RpcMeasurer
    from tensorese.measure.timing import TimingConfig

_HOME = {
    "Candidate": "tensorese.measure.base",
    "Measurer": "tensorese.measure.base",
    "Ticket": "tensorese.measure.base",
    "from_module": "tensorese.measure.candidates",
    "from_schedule": "tensorese.measure.candidates",
    "workload_of": "tensorese.identity",
    "FarmConfig": "tensorese.measure.config",
    "Farm": "tensorese.measure.farm",
    "ReplayMeasurer": "tensorese.measure.replay",
    "RpcMeasurer": "tensorese.measure.rpc",
    "TimingConfig": "tensorese.measure.timing",
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
    return getattr(importlib.import_module(_HOME[name]), name)
