"""A platform as a few numbers, so that a model can be told of one it has never seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KIB = 1024
# LLVM's name, or its beginning: vector bits, and KiB of L1d, L2 (a core) and L3 (a socket's part).
_CPUS: Mapping[str, tuple[int, int, int, int]] = {
    "emeraldrapids": (512, 48, 2048, 262144),
    "sapphirerapids": (512, 48, 2048, 107520),
    "graniterapids": (512, 48, 2048, 442368),
    "icelake-server": (512, 48, 1280, 49152),
    "skylake-avx512": (512, 32, 1024, 28160),
    "cascadelake": (512, 32, 1024, 36608),
    "znver5": (512, 48, 1024, 32768),
    "znver4": (512, 32, 1024, 32768),
    "znver3": (256, 32, 512, 32768),
    "znver2": (256, 32, 512, 16384),
    "znver1": (128, 32, 512, 8192),
    "alderlake": (256, 48, 1280, 30720),
    "skylake": (256, 32, 256, 8192),
    "haswell": (256, 32, 256, 8192),
    "core-avx2": (256, 32, 256, 8192),
    "neoverse": (128, 64, 1024, 32768),
    "cortex-a7": (128, 64, 512, 2048),
    "apple": (128, 128, 4096, 16384),
}
_ANY_CPU = (256, 32, 512, 16384)
# Streaming multiprocessors by architecture, of the largest card that has it.
_MULTIPROCESSORS = {"sm_70": 80, "sm_75": 68, "sm_80": 108, "sm_86": 82, "sm_89": 128, "sm_90": 132}


def hardware_numbers(target: Mapping[str, Any]) -> dict[str, int]:
    """Of a TVM target; what it does not state is looked up by its CPU's or architecture's name."""
    if target.get("kind") == "llvm":
        name = str(target.get("mcpu", ""))
        known = max((k for k in _CPUS if name.startswith(k)), key=len, default="")
        bits, first, second, third = _CPUS.get(known, _ANY_CPU)
        return {
            "cores": int(target.get("num-cores", 1)),
            "vector bits": bits,
            "L1": first * _KIB,
            "L2": second * _KIB,
            "L3": third * _KIB,
        }
    return {
        "multiprocessors": _MULTIPROCESSORS.get(str(target.get("arch", "")), 80),
        "shared memory": int(target.get("max_shared_memory_per_block", 49152)),
        "registers": int(target.get("registers_per_block", 65536)),
        "threads": int(target.get("max_threads_per_block", 1024)),
        "warp": int(target.get("thread_warp_size", 32)),
    }
