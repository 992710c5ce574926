"""The one preparation of a network for a target: what tuning extracts and what deploy compiles.

Both go through `prepare`, so a task's workload is exactly a function of the shipped library.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from tensorese.tvm_env import import_tvm
from tensorese.workloads.attention import attention as in_one_kernel
from tensorese.workloads.channels import carry_channels
from tensorese.workloads.choice import Choice
from tensorese.workloads.errors import NetworkError, first_line
from tensorese.workloads.masks import keep_masks_apart
from tensorese.workloads.regroup import regroup
from tensorese.workloads.simplify import simplify
from tensorese.workloads.winograd import keep_apart
from tensorese.workloads.winograd import winograd as by_winograd

# Channels innermost: vectors run along channels and neighbouring pixels share them.
_LAYOUTS = {
    "relax.nn.conv2d": ["NHWC", "HWIO"],
    "relax.nn.conv3d": ["NDHWC", "DHWIO"],
    # TVM would carry the layout into these too, and then could not lower them.
    "relax.nn.conv2d_transpose": ["NCHW", "IOHW"],
    "relax.nn.conv3d_transpose": ["NCDHW", "IODHW"],
}


def prepare(
    module: Any,
    target: str,
    *,
    prepack: bool = True,
    winograd: bool | Choice = False,
    attention: bool | Choice = False,
) -> Any:
    """Fused, folded and re-laid-out: Relax calls to the TIR functions that are tuned.

    `target` is canonical JSON (`tensorese.targets.Target.to_json`). On a CPU, constant weights
    are marked free for re-layout: `RewriteLayout` may then choose their order with the schedule,
    and deploy packs them once, at compile time. Without `prepack` they keep the network's order.
    With `winograd`, 3x3 convolutions on a CPU go by that algorithm where it seems to pay, or as a
    `Choice` says; with `attention`, that is one kernel there likewise.
    """
    kind = str(json.loads(target)["kind"])
    tvm = import_tvm()  # no kernel of the target is made here: none of its intrinsics are needed
    transform = tvm.relax.transform
    with tvm.target.Target(json.loads(target)):
        for rewriting in (simplify, partial(_channels_last, tvm), simplify):
            module = _without_fail(rewriting, module)
        module = _without_fail(partial(regroup, whole_vectors=kind == "llvm"), module)
        for chosen, how in ((by_winograd, winograd), (in_one_kernel, attention)):
            if kind == "llvm" and how:
                choice = how if isinstance(how, Choice) else Choice()
                module = _without_fail(partial(chosen, choice=choice), module)
        if kind == "llvm":
            module = _without_fail(carry_channels, module)
        masks = [tvm.transform.module_pass(lambda m, _: keep_masks_apart(m), opt_level=0)]
        passes = [
            transform.DecomposeOpsForInference(),
            transform.CanonicalizeBindings(),
            # Sorts and scans have no TIR of their own: TVM brings one, which is not tuned.
            tvm.relax.backend.DispatchSortScan(),
            transform.LegalizeOps(),
            transform.AnnotateTIROpPattern(),
            tvm.transform.module_pass(lambda m, _: keep_apart(m), opt_level=0),
            *(masks if kind == "llvm" else []),
            transform.FoldConstant(),
            transform.FuseOps(),
            transform.FuseTIR(),
            # What only reshapes is a view at run time: no kernel, no task.
            transform.RewriteDataflowReshape(),
            transform.DeadCodeElimination(),
        ]
        if kind == "llvm" and prepack:
            passes.append(transform.AttachAttrLayoutFreeBuffers())
        try:
            return tvm.transform.Sequential(passes)(module)
        except Exception as error:
            raise NetworkError(f"TVM cannot lower this network: {first_line(error)}") from error


def _without_fail(rewriting: Callable[[Any], Any], module: Any) -> Any:
    """A network that one of our rewritings cannot take goes on without it, with a warning."""
    try:
        return rewriting(module)
    except Exception as error:
        name = getattr(rewriting, "func", rewriting).__name__.strip("_")
        _warn_once(f"the network goes on without {name}: {first_line(error)}")
        return module


@cache  # tuning and deploy both prepare a network: warn once
def _warn_once(text: str) -> None:
    logging.getLogger("tensorese").warning(text)


def _channels_last(tvm: Any, module: Any) -> Any:
    """As it came where TVM's pass gives up: it knows no layout of a few operators (`stack`)."""
    try:
        return tvm.relax.transform.ConvertLayout(_LAYOUTS)(module)
    except tvm.error.InternalError:
        return module
