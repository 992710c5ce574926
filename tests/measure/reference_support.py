"""What the referee is checked against: the same module built by TVM, on this CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorese.measure.reference import output_indices
from tensorese.tvm_env import import_tvm

TARGET = {"kind": "llvm", "num-cores": 2}


def run_in_tvm(mod: Any, inputs: list[Any], like: list[Any]) -> list[Any]:
    """Builds `mod` and runs it; `like` gives shapes and types of the outputs."""
    tvm = import_tvm()
    outputs = [tvm.runtime.empty(a.shape, str(a.dtype)) for a in like]
    written, feed = output_indices(mod), iter(inputs)
    args = [
        outputs[written.index(k)] if k in written else tvm.runtime.tensor(next(feed))
        for k in range(len(inputs) + len(outputs))
    ]
    tvm.build(mod, target=tvm.target.Target(TARGET))["main"](*args)
    return [np.asarray(out.numpy()) for out in outputs]


def module_of(tensors: Any) -> Any:
    tvm = import_tvm()
    from tvm import te

    return tvm.IRModule({"main": te.create_prim_func(tensors)})
