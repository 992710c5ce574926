"""From a prepared module to a shared library that TVM's virtual machine runs."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tensorese.deploy.errors import DeployError
from tensorese.lowering import pass_config
from tensorese.measure import nvrtc
from tensorese.measure.linking import link
from tensorese.targets import usable_cores
from tensorese.tvm_env import import_tvm


def build_library(module: Any, target: str, path: Path, *, graphs: bool = False) -> None:
    """Compiles and links `module`; weights travel inside the library.

    The library is complete: stock TVM loads it without this package. With `graphs` a GPU gets all
    but the kernels that touch inputs and outputs as one CUDA graph.
    """
    spec = json.loads(target)
    tvm = import_tvm(spec["kind"])
    parsed = tvm.target.Target(spec)
    config = {**pass_config(spec["kind"]), "relax.backend.use_cuda_graph": graphs}
    on_cuda = spec["kind"] == "cuda"
    kernels = nvrtc.side_by_side(len(usable_cores())) if on_cuda else nullcontext()
    with parsed, tvm.transform.PassContext(opt_level=3, config=config), kernels:
        if spec["kind"] != "llvm":
            module = with_default_gpu_schedules(tvm, module)
        executable = tvm.relax.build(module, parsed, relax_pipeline=lowering(tvm, graphs=graphs))
    _export(executable, path, target)


def lowering(tvm: Any, *, graphs: bool = False) -> Any:
    """TVM's own way from calls of kernels to the machine's instructions, less the graph passes.

    `prepare` has done those; doing them again could fuse across the tasks that were tuned.
    """
    transform = tvm.relax.transform
    return tvm.transform.Sequential(
        [
            transform.RewriteDataflowReshape(),
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
            *([transform.RewriteCUDAGraph()] if graphs else []),
            transform.LowerAllocTensor(),
            transform.KillAfterLastUse(),
            transform.LowerRuntimeBuiltin(),
            transform.ComputePrimValue(),
            transform.VMShapeLower(),
            transform.AttachGlobalSymbol(),
        ]
    )


def with_default_gpu_schedules(tvm: Any, module: Any) -> Any:
    """A kernel without thread bindings does not build on a GPU: dlight's rules bind the rest."""
    dlight = importlib.import_module("tvm.s_tir.dlight")
    gpu = dlight.gpu
    rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
    return dlight.ApplyDefaultSchedule(*rules)(module)


def _export(executable: Any, path: Path, target: str) -> None:
    worker = importlib.import_module("tensorese.measure.build_worker")
    aside = path.with_name(f".{path.stem}.{os.getpid()}.so")
    try:
        link(executable.mod, str(aside), target)
        aside.replace(path)
    except (OSError, RuntimeError) as error:
        aside.unlink(missing_ok=True)
        raise DeployError(f"{path} cannot be written: {worker.short(error)[:300]}") from None


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
