"""A task whose CUDA sketches reduce across threads, and a target for it without a GPU."""

from __future__ import annotations

from typing import Any

from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

H200 = Target.from_json(
    '{"arch":"sm_90","kind":"cuda","max_num_threads":1024,"max_shared_memory_per_block":49152,'
    '"max_threads_per_block":1024,"registers_per_block":65536,"thread_warp_size":32}'
)


def mean_module() -> Any:
    """Of 7x7 pixels, channels last: what ends a ResNet."""
    te = import_tvm("llvm").te
    x = te.placeholder((1, 7, 7, 256), name="x")
    h, w = te.reduce_axis((0, 7), name="h"), te.reduce_axis((0, 7), name="w")
    total = te.compute((1, 256), lambda n, c: te.sum(x[n, h, w, c], axis=[h, w]), name="total")
    mean = te.compute((1, 256), lambda n, c: total[n, c] / 49.0, name="mean")
    return import_tvm("llvm").IRModule({"main": te.create_prim_func([x, mean])})
