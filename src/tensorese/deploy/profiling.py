"""Where a library spends its time, kernel by kernel, seen from inside the virtual machine."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tensorese.deploy.arrays import store_arrays
from tensorese.deploy.errors import DeployError
from tensorese.deploy.systems import System

_MACHINE = ("vm.", "relax.")  # the machine's own builtins: allocation, shapes, views


def profile(system: System, runs: int) -> list[dict[str, Any]]:
    """Seconds and calls of each kernel in one run, the median of `runs`; costliest first."""
    clock = time.perf_counter
    starts: list[float] = []
    taken: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)

    sync = _sync(system)

    def instrument(_func: Any, name: str, before: bool, _result: Any, *_args: Any) -> None:
        sync()
        if before:
            starts.append(clock())
        else:
            taken[name] += clock() - starts.pop()
            calls[name] += 1

    machine = _machine(system)
    samples: dict[str, list[float]] = defaultdict(list)
    machine.set_instrument(instrument)
    try:
        for _ in range(runs):
            taken.clear()
            calls.clear()
            system.call()
            for name, secs in taken.items():
                samples[name].append(secs)
    finally:
        machine.set_instrument(None)  # a function that does nothing would still be called
    rows = [
        {"kernel": name, "secs": statistics.median(secs), "calls": calls[name]}
        for name, secs in samples.items()
    ]
    return sorted(rows, key=lambda row: -float(row["secs"]))


def keep_values(system: System, call: Callable[[], Any], path: str) -> list[str]:
    """What every kernel of a call wrote, in order, as arrays in a file; returns their names."""
    names: list[str] = []
    arrays: list[Any] = []

    def instrument(_func: Any, name: str, before: bool, _result: Any, *args: Any) -> None:
        if not before and not name.startswith(_MACHINE) and args:
            arrays.append(args[-1].numpy())
            names.append(name)

    machine = _machine(system)
    machine.set_instrument(instrument)
    try:
        call()
    finally:
        machine.set_instrument(None)  # a function that does nothing would still be called
    store_arrays(path, "k", arrays)
    return names


def is_kernel(name: str) -> bool:
    return not name.startswith(_MACHINE)


def _sync(system: System) -> Callable[[], None]:
    """A GPU's kernels go on after their call has returned; a CPU's do not."""
    library = system.library
    if library is None or library.device.dlpack_device_type() == 1:
        return lambda: None
    wait: Callable[[], None] = library.device.sync
    return wait


def _machine(system: System) -> Any:
    if system.library is None:
        raise DeployError("only a library of ours can be looked into")
    return system.library.machine
