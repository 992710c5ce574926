"""From a tuned run to a library: compile, verify, time, load."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorese.deploy.bench import bench_run
    from tensorese.deploy.compile import compile_run
    from tensorese.deploy.errors import DeployError
    from tensorese.deploy.library import Library, load

_HOME = {
    "DeployError": "errors",
    "Library": "library",
    "bench_run": "bench",
    "compile_run": "compile",
    "load": "library",
}

__all__ = ["DeployError", "Library", "bench_run", "compile_run", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
