"""torch on a GPU as a rival: as it stands, compiled, and with CUDA graphs, in four precisions.

Inputs and outputs stay on the device, as those of our library do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]

MODES = {"torch": None, "torch.compile": "default", "torch.compile, graphs": "reduce-overhead"}
PRECISIONS = {"float32": 2.0**-23, "TF32": 2.0**-10, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""And the rounding error of one product in each."""
_ROOM = 16.0  # rounding errors
_WARM_UP = 5  # runs: torch.compile records graphs in the second and third


@dataclass(frozen=True, kw_only=True)
class CudaRival:
    """One way of running torch on the GPU."""

    mode: str
    precision: str

    def __post_init__(self) -> None:
        if self.mode not in MODES or self.precision not in PRECISIONS:
            raise ValueError(f"no such rival: {self.mode}, {self.precision}")

    @property
    def name(self) -> str:
        return f"{self.mode}, {self.precision}"

    def spec(self, model: str) -> dict[str, Any]:
        """The message that makes a process run it."""
        return {
            "kind": "torch-cuda",
            "model": model,
            "mode": self.mode,
            "precision": self.precision,
        }


PLAIN = CudaRival(mode="torch", precision="float32")


def rivals() -> list[CudaRival]:
    return [CudaRival(mode=mode, precision=one) for one in PRECISIONS for mode in MODES]


def at_least(name: str, limit: float) -> float:
    """By how much a system of this name may differ: who computes coarsely is off by more."""
    return max(limit, _ROOM * PRECISIONS.get(name.rpartition(", ")[2], 0.0))


def binder(
    spec: Mapping[str, Any],
    module_of: Callable[[str], Any],
    calling: Callable[[Any, Sequence[Any]], Callable[[], Any]],
    arrays: Sequence[Array],
) -> Callable[[Sequence[Array]], Callable[[], Any]]:
    """Binds arrays to a call that ends when the GPU has; `calling` makes one of module and tensors,
    in whatever way the module takes its inputs."""
    import torch

    from tensorese.workloads.from_torch import tensor_of

    if not torch.cuda.is_available():
        raise RuntimeError("this torch was built without CUDA; install one that has it")
    precision = str(spec["precision"])
    torch.backends.cuda.matmul.allow_tf32 = precision == "TF32"
    torch.backends.cudnn.allow_tf32 = precision == "TF32"
    torch.backends.cudnn.benchmark = True
    half = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(precision)
    module = module_of(str(spec["model"])).cuda()
    module = module if half is None else module.to(half)
    images = any(array.ndim == 4 for array in arrays)
    module = module.to(memory_format=torch.channels_last) if images else module
    compiled = MODES[str(spec["mode"])]
    run = module if compiled is None else torch.compile(module, mode=compiled)

    def placed(array: Array) -> Any:
        tensor = tensor_of(torch, array).cuda()
        if half is not None and tensor.is_floating_point():
            tensor = tensor.to(half)
        return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor

    def bind(arrays: Sequence[Array]) -> Callable[[], Any]:
        inner = calling(run, [placed(array) for array in arrays])

        def call() -> Any:
            outputs = inner()
            torch.cuda.synchronize()
            return outputs

        for _ in range(_WARM_UP):
            call()
        return call

    return bind
