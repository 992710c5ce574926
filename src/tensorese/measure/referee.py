"""Verifies candidates inside a runner: seeded inputs, a cached reference, a justified tolerance.

The reference is computed by our numpy evaluator, which shares no code with TVM's code generator;
what it cannot evaluate is computed by the unscheduled program instead, and the record says so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from tensorese.measure.build_worker import argument_specs, load_module, read_workload
from tensorese.measure.reference import (
    Unsupported,
    compare,
    input_specs,
    output_indices,
    reduction_length,
    reference_case,
    relayout_inputs,
    seeded_inputs,
    tolerance,
)
from tensorese.measure.reference.expressions import np_dtype
from tensorese.measure.wire import Message

Arrays = list[npt.NDArray[Any]]


class Referee:
    def __init__(self, *, scratch: str, device: Any) -> None:
        self.scratch = Path(scratch)
        self.device = device

    def _path(self, workload_id: str, seed: int) -> Path:
        return self.scratch / f"reference-{workload_id}-{seed}.npz"

    def has(self, workload_id: str, seed: int) -> bool:
        return self._path(workload_id, seed).exists()

    def prepare(self, workload_id: str, workload: str, seed: int) -> None:
        """Computes and stores the reference once; other runners of this farm read it."""
        module = read_workload(workload)
        try:
            (inputs, outputs), by = reference_case(module, seed), "numpy"
        except Unsupported:
            inputs = seeded_inputs(input_specs(module), seed)
            outputs, by = run_unscheduled(module, inputs), "unscheduled"
        path = self._path(workload_id, seed)
        partial = path.with_suffix(f".{os.getpid()}.npz")
        arrays: dict[str, Any] = {f"out{i}": a for i, a in enumerate(outputs)}
        arrays |= {f"in{i}": a for i, a in enumerate(inputs)}
        np.savez(partial, by=np.array(by), length=np.array(reduction_length(module)), **arrays)
        os.replace(partial, path)

    def check(self, library: Any, job: Message) -> dict[str, Any]:
        """The `verification` field of a measurement."""
        workload = read_workload(job["workload"])
        outputs = output_indices(workload)
        with np.load(self._path(job["workload_id"], job["seed"]), allow_pickle=False) as stored:
            specs = [spec for i, spec in enumerate(job["args"]) if i not in outputs]
            inputs = [_typed(stored[f"in{i}"], dtype) for i, (_, dtype) in enumerate(specs)]
            wanted = [_typed(stored[f"out{i}"], job["args"][k][1]) for i, k in enumerate(outputs)]
            by, length = str(stored["by"]), int(stored["length"])
        args = self._poisoned(relayout_inputs(load_module(job), inputs), job["args"], outputs)
        library["main"](*args)
        self.device.sync()
        for index, want in zip(outputs, wanted, strict=True):
            rtol, atol = tolerance(str(job["args"][index][1]), length)
            verdict = compare(args[index].numpy(), want, rtol, atol)
            if not verdict.passed:
                break
        return {
            "passed": verdict.passed,
            "note": verdict.note,
            "max_abs_error": float(verdict.max_abs_error),
            "max_rel_error": float(verdict.max_rel_error),
            "rtol": rtol,
            "atol": atol,
            "seed": job["seed"],
            "reference": by,
        }

    def _poisoned(
        self, inputs: Arrays, specs: list[tuple[list[int], str]], outputs: list[int]
    ) -> list[Any]:
        """Arguments of the built function; outputs start as garbage, so skipped writes show."""
        args: Arrays = []
        remaining = iter(inputs)
        for index, (shape, dtype) in enumerate(specs):
            if index in outputs:
                args.append(np.full(shape, 77, dtype=dtype))
            else:
                args.append(next(remaining))
        return [tvm.runtime.tensor(np.ascontiguousarray(a), self.device) for a in args]


def _typed(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """numpy's files forget types it does not know itself, such as bfloat16."""
    return array.view(np_dtype(dtype)) if array.dtype.kind == "V" else array


def run_unscheduled(module: Any, inputs: Arrays) -> Arrays:
    """The program as written, on one CPU core: slow and built by TVM, but any operator."""
    library = tvm.build(module, target=tvm.target.Target({"kind": "llvm"}))
    outputs = output_indices(module)
    remaining = iter(inputs)
    args = [
        tvm.runtime.tensor(np.zeros(shape, dtype=dtype) if i in outputs else next(remaining))
        for i, (shape, dtype) in enumerate(argument_specs(module))
    ]
    library["main"](*args)
    return [args[i].numpy() for i in outputs]
