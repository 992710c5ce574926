"""Where a library spends its time, kernel by kernel, seen from inside the virtual machine."""

from __future__ import annotations

import importlib
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from tensorese.deploy.arrays import Array, store_arrays
from tensorese.deploy.errors import DeployError
from tensorese.deploy.systems import System
from tensorese.tvm_env import import_tvm

_LAUNCHED = re.compile(r"_kernel(_\d+)?$")
_IN_A_ROW = 10  # calls: of a single one the GPU would wait for the first kernel to be asked for
_MACHINE = ("vm.", "relax.")  # the machine's own builtins: allocation, shapes, views


def look_inside(system: System, arrays: Sequence[Array], runs: int) -> dict[str, Any]:
    """`kernels` of a library in place and, on a GPU, seconds of one call between events on the
    `device`, whose queue never runs dry, and of one that takes its inputs `from_host` and gives
    its outputs there."""
    library = system.library
    if library is None or library.device.dlpack_device_type() == 1:
        return {"kernels": profile(system, runs)}
    on_device = library.placed(arrays)
    evaluator = library.machine.time_evaluator(
        "main", library.device, number=_IN_A_ROW, repeat=runs
    )
    device = statistics.median(evaluator(*on_device).results)
    host = statistics.median(_seconds(lambda: library(*arrays)) for _ in range(runs))
    return {"kernels": _on_gpu(system, runs), "device": device, "from_host": host}


def warm_up() -> None:
    """What looking into a library on a GPU needs, and its context."""
    import_tvm("cuda").cuda(0).sync()
    importlib.import_module("torch.profiler")


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _on_gpu(system: System, runs: int) -> list[dict[str, Any]]:
    """As the GPU's own counters have it, by torch's profiler: nothing waits between kernels, and
    those of a CUDA graph are seen too. Empty where this torch has no CUDA."""
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return []
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CUDA]) as session:
        for _ in range(runs):
            system.call()
        torch.cuda.synchronize()
    taken: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for event in session.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            name = _LAUNCHED.sub("", str(event.name))  # a function may launch several kernels
            taken[name][str(event.name)].append(event.time_range.elapsed_us() * 1e-6)
    rows = [
        {
            "kernel": name,
            "secs": sum(statistics.median(secs) * len(secs) / runs for secs in parts.values()),
            "calls": round(max(map(len, parts.values())) / runs),
        }
        for name, parts in taken.items()
    ]
    return sorted(rows, key=lambda row: -float(row["secs"]))


def profile(system: System, runs: int) -> list[dict[str, Any]]:
    """Seconds and calls of each kernel in one run, the median of `runs`; costliest first."""
    clock = time.perf_counter
    starts: list[float] = []
    taken: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)

    def instrument(_func: Any, name: str, before: bool, _result: Any, *_args: Any) -> None:
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


def _machine(system: System) -> Any:
    if system.library is None:
        raise DeployError("only a library of ours can be looked into")
    return system.library.machine
