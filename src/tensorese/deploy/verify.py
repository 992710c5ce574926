"""Whether a library computes what its network does: on two inputs, against two references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorese.deploy import torch_cuda
from tensorese.deploy.arena import Arena
from tensorese.deploy.arrays import Array
from tensorese.deploy.build import build_library
from tensorese.deploy.built import Built
from tensorese.deploy.errors import DeployError
from tensorese.deploy.systems import is_onnx
from tensorese.deploy.verdict import (
    NetworkVerdict,
    compare,
    difference,
    half_tolerance,
    rival_limits,
    tolerance,
)

SEEDS = (0, 1)
"""Of the inputs: with two, an output that never moves is seen."""
_SAME_KERNELS = "same_kernels"


class WrongKernel(DeployError):
    """A tuned kernel that computes something else than its untuned form."""

    def __init__(self, message: str, workload: str, error: float) -> None:
        super().__init__(message)
        self.workload = workload
        self.error = error


def inputs_of(built: Built) -> list[list[Array]]:
    return [built.network.example(seed) for seed in SEEDS]


def verify(built: Built, arena: Arena) -> dict[str, Any]:
    """What was compared and how it came out; raises where outputs differ.

    `WrongKernel` names the kernel to blame, if it is a tuned one; nothing can be done about others.
    """
    inputs = inputs_of(built)
    got = [arena.outputs("tuned", at) for at in range(len(inputs))]
    against = _references(built, arena, inputs)
    allowed = _allowed(built, against, got[0])
    checks: dict[str, Any] = {
        "seeds": list(SEEDS),
        "given": sorted(built.network.given),
        "against": {},
        **built.depth,
    }
    for name, wanted in against.items():
        if isinstance(wanted, str):
            checks["against"][name] = {"passed": None, "note": wanted}
        elif name != "source":
            verdicts = [compare(g, w, allowed) for g, w in zip(got, wanted, strict=True)]
            checks["against"][name] = _worst(built, arena, name, verdicts).to_dict()
    checked = {"tuned", "untuned", _source(built)}
    _drop_those_that_differ(arena, got[0], allowed, checked)
    return checks | _stated(got, against)


def compare_rivals(built: Built, arena: Arena) -> None:
    """Drops those that compute something else than the library, which was verified before."""
    got = arena.outputs("tuned")
    ours = {name for name, one in arena.contenders.items() if one.kind == "library"}
    for name in ours | ({_source(built)} & arena.contenders.keys()):
        arena.outputs(name)  # how long its first run takes is noted
    allowed = [limit_of(built, str(array.dtype)) for array in got]
    _drop_those_that_differ(arena, got, allowed, ours | {_source(built)})


def _references(
    built: Built, arena: Arena, inputs: Sequence[list[Array]]
) -> dict[str, list[list[Array]] | str]:
    """Outputs to agree with, by system; where it has none, the reason.

    A half-precision network is compared with its source in float32. What the source computes in
    its own precision (`source`) then says how much of a difference is the precision's.
    """
    name = _source(built)
    references: dict[str, list[list[Array]] | str] = {
        one: [arena.outputs(one, at) for at in range(len(inputs))]
        for one in ("untuned",)
        if one in arena.contenders
    }
    if name in arena.contenders and built.network.exact:
        name = built.network.exact
        source = [built.network.reference(arrays) for arrays in inputs]
    elif name in arena.contenders:
        source = [arena.outputs(name, at) for at in range(len(inputs))]
    elif built.run.kind != "llvm":  # the source is not timed, but can be compared with
        source = [built.network.reference(arrays) for arrays in inputs]
    else:
        return {**references, name: arena.absent.get(name, "absent")}
    if built.network.widened is None:
        return {**references, name: source}
    wide = [built.network.widened(arrays) for arrays in inputs]
    return {**references, f"{name} in float32": wide, "source": source}


def _source(built: Built) -> str:
    return "onnxruntime" if is_onnx(built.run.model) else "torch"


def _allowed(built: Built, against: Any, got: Sequence[Array]) -> list[float]:
    allowed = [limit_of(built, str(array.dtype)) for array in got]
    wide = next((wanted for name, wanted in against.items() if name.endswith("float32")), None)
    if wide is None:
        return allowed
    pairs = list(zip(against["source"], wide, strict=True))
    own = [max(difference(s[i], w[i]) for s, w in pairs) for i in range(len(got))]
    return [half_tolerance(limit, error) for limit, error in zip(allowed, own, strict=True)]


def limit_of(built: Built, dtype: str) -> float:
    """By the coarsest type the network computes in: a float32 output may come of halves."""
    is_float = dtype.startswith(("float", "bfloat"))
    return tolerance(built.precision if is_float else dtype, **built.depth)


def _worst(
    built: Built, arena: Arena, name: str, verdicts: Sequence[NetworkVerdict]
) -> NetworkVerdict:
    for at, verdict in enumerate(verdicts):
        if not verdict.passed:
            rule = f"outputs must agree with {name} to {verdict.tolerance:.2g}, but {verdict.note}"
            raise _blame(built, arena, at, f"{rule} on input {at}")
    return max(verdicts, key=lambda verdict: verdict.error)


def _blame(built: Built, arena: Arena, at: int, rule: str) -> DeployError:
    """Names the kernel that first wrote something else than its untuned form, if there is one."""
    if built.graphs:  # nobody sees the kernels inside
        return DeployError(rule)
    other = _same_kernels(built, arena)
    try:
        pairs = zip(arena.values("tuned", at), arena.values(other, at), strict=False)
        for (name, got), (_, want) in pairs:
            error = difference(got, want)
            if error <= limit_of(built, str(got.dtype)):
                continue
            workload = built.applied.tuned.get(name, built.applied.untuned.get(name, ""))
            best = built.run.best.get(workload)
            if best is None:
                what = f"{name}, which is untuned"
                return DeployError(f"{rule}; the first wrong kernel is {what}; nothing is shipped")
            message = f"{rule}; the first wrong kernel is the program of {best.name} ({workload})"
            return WrongKernel(message, workload, error)
    finally:
        if other == _SAME_KERNELS:
            arena.drop(other, "")
            arena.absent.pop(other)
    return DeployError(f"{rule}; kernel by kernel both builds agree; nothing is shipped")


def _same_kernels(built: Built, arena: Arena) -> str:
    """The contender with the tuned library's kernels, none of them tuned."""
    if not any(built.otherwise.values()) and "untuned" in arena.contenders:
        return "untuned"
    path = arena.scratch / f"{_SAME_KERNELS}.so"
    build_library(built.prepared, built.run.target, path)
    arena.add(_SAME_KERNELS, built.contender(path, entry="main"))
    return _SAME_KERNELS


def _drop_those_that_differ(
    arena: Arena, got: Sequence[Array], allowed: Sequence[float], checked: set[str]
) -> None:
    """A rival that computes something else is no rival."""
    allowed = rival_limits(got, allowed)
    for name in set(arena.contenders) - checked:
        try:
            limits = [torch_cuda.at_least(name, limit) for limit in allowed]
            verdict = compare(got, arena.outputs(name), limits)
            note = "" if verdict.passed else f"not compared: {verdict.note}"
        except DeployError as error:
            note = str(error)
        if note:
            arena.drop(name, note)


def _stated(got: Sequence[Sequence[Array]], against: Any) -> dict[str, list[int]]:
    """Outputs whose agreement says little, by their place: constant ones, and those with NaN."""
    first, second = got[0], got[1]
    constant = [
        i for i, (a, b) in enumerate(zip(first, second, strict=True)) if _same(a, b) and a.size
    ]
    sources = [wanted for wanted in against.values() if not isinstance(wanted, str)]
    undefined = {
        i
        for wanted in sources
        for outputs in wanted
        for i, array in enumerate(outputs)
        if array.dtype.kind not in "biu" and np.isnan(array.astype(np.float64)).any()
    }
    return {"constant": constant, "undefined": sorted(undefined)}


def _same(a: Array, b: Array) -> bool:
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    return bool(np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True))
