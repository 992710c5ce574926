"""Whether a node is of the kind that a target names: records of one platform are of one kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tensorese import __version__
from tensorese.targets import Target, host_cpu
from tensorese.tvm_env import import_tvm


def facts_here(kind: str, cores: int = 0) -> dict[str, Any]:
    """What this host is; `cores` is how many of its own it lends, 0 for all."""
    tvm = import_tvm()
    cpu = host_cpu()
    arch = ""
    if kind == "cuda" and tvm.cuda(0).exist:
        arch = "sm_" + str(tvm.cuda(0).compute_version).replace(".", "")
    return {
        "host": os.uname().nodename,
        "mcpu": cpu.mcpu,
        "cores": min(cores or cpu.cores, cpu.cores),
        "arch": arch,
        "tensorese": __version__,
        "tvm": str(tvm.__version__),
    }


def mismatch(target: Target, facts: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Why a node must not measure for the target; empty when it may. `here` is the driver."""
    for name in ("tensorese", "tvm"):
        if facts[name] != here[name]:
            return f"it has {name} {facts[name]}, the driver {here[name]}"
    if target.is_cpu:
        if target.mcpu and facts["mcpu"] != target.mcpu:
            return f"its CPU is {facts['mcpu']}, the target's is {target.mcpu}"
        if facts["cores"] < target.threads:
            return f"it lends {facts['cores']} cores, the target has {target.threads}"
        return ""
    if target.kind == "cuda" and target.arch and facts["arch"] != target.arch:
        return f"its GPU is {facts['arch'] or 'missing'}, the target's is {target.arch}"
    return ""
