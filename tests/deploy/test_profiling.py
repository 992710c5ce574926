"""Looking into a library leaves it as it was: one that is timed afterwards is not slowed down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensorese.deploy.profiling import keep_values, profile

pytestmark = pytest.mark.null


class Machine:
    """Two kernels and an allocation, each told to the instrument before and after."""

    def __init__(self) -> None:
        self.instrument: Any = None

    def set_instrument(self, instrument: Any) -> None:
        self.instrument = instrument

    def run(self) -> None:
        for name in ("vm.builtin.alloc_tensor", "conv2d", "conv2d", "softmax"):
            for before in (True, False):
                if self.instrument is not None:
                    self.instrument(None, name, before, None, Written())


class Written:
    def numpy(self) -> Any:
        return np.ones(2)


def system_of(machine: Machine, *, fails: bool = False) -> Any:
    def call() -> None:
        machine.run()
        if fails:
            raise RuntimeError("broken")

    device = SimpleNamespace(dlpack_device_type=lambda: 1)
    return SimpleNamespace(library=SimpleNamespace(machine=machine, device=device), call=call)


def test_a_profile_counts_calls_and_leaves_nothing_behind() -> None:
    machine = Machine()
    rows = profile(system_of(machine), runs=3)
    assert {row["kernel"]: row["calls"] for row in rows} == {
        "vm.builtin.alloc_tensor": 1,
        "conv2d": 2,
        "softmax": 1,
    }
    assert machine.instrument is None


def test_so_does_one_that_fails() -> None:
    machine = Machine()
    with pytest.raises(RuntimeError, match="broken"):
        profile(system_of(machine, fails=True), runs=1)
    assert machine.instrument is None


def test_values_are_kept_of_kernels_alone(tmp_path: Any) -> None:
    machine = Machine()
    system = system_of(machine)
    names = keep_values(system, system.call, str(tmp_path / "values.npz"))
    assert names == ["conv2d", "conv2d", "softmax"]
    assert machine.instrument is None
