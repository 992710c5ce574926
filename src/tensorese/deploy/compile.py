"""`compile_run`: from a tuned run to a verified, timed library with its certificate."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tensorese.deploy.apply import Applied, apply_programs, kernels_of, normalised
from tensorese.deploy.arena import Arena, Array
from tensorese.deploy.build import build_library, sha256
from tensorese.deploy.database import write_database
from tensorese.deploy.errors import DeployError
from tensorese.deploy.explain import explain, kernel_rows
from tensorese.deploy.folder import Run, read_run
from tensorese.deploy.library import Argument, Signature
from tensorese.deploy.systems import available, is_onnx
from tensorese.deploy.verdict import compare, difference, tolerance
from tensorese.records.run_folder import CERTIFICATE, DATABASE, write_object
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm, toolchain_of
from tensorese.workloads import load_network, prepare
from tensorese.workloads.winograd_kernels import is_transform

Step = Callable[[str], None]
SEED = 0
PROFILE_RUNS = 10


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long systems are compared."""

    rounds: int = 7
    secs: float = 0.4
    """Per system and round."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Built:
    """A run's network on its way to a library."""

    run: Run
    network: Any
    prepared: Any
    applied: Applied
    packed: bool = True
    """Whether constant weights are in the order the programs chose."""

    @cached_property
    def by_winograd(self) -> bool:
        """Whether a convolution is computed otherwise than the network says."""
        return any(is_transform(normalised(f)) for f in kernels_of(self.prepared).values())

    @cached_property
    def direct(self) -> Any:
        """Prepared with every convolution as it is written: what the result is judged by."""
        if not self.by_winograd:
            return self.prepared
        return prepare(self.network.module, self.run.target, prepack=self.run.prepack)

    @cached_property
    def depth(self) -> dict[str, int]:
        """What errors grow with: kernel calls of one inference, terms of the longest sum."""
        reference = importlib.import_module("tensorese.measure.reference")
        weights = [int(task["weight"]) for task in self.run.tasks]
        modules = [normalised(f) for f in kernels_of(self.direct).values()]
        longest = max((reference.reduction_length(module) for module in modules), default=1)
        return {"kernels": sum(weights), "reduction": int(longest)}

    @cached_property
    def signature(self) -> Signature:
        inputs = [
            Argument(name=one.name, shape=one.spec.shape, dtype=one.spec.dtype)
            for one in self.network.inputs
        ]
        returned = self.prepared["main"].ret_ty
        fields = list(getattr(returned, "fields", [returned]))
        outputs = [
            Argument(
                name=f"output{index}",
                shape=tuple(int(extent) for extent in field.shape),
                dtype=str(field.dtype),
            )
            for index, field in enumerate(fields)
        ]
        return Signature(target=self.run.target, inputs=tuple(inputs), outputs=tuple(outputs))


def compile_run(
    run: str | os.PathLike[str],
    *,
    on_step: Step = lambda _: None,
    timing: Timing | None = None,
    prepack: bool = True,
) -> dict[str, Any]:
    """Builds the network with its best programs, verifies and times it; returns the certificate.

    Without `prepack` the programs read weights in the network's own order. A library whose
    outputs differ is not shipped: an earlier one stays as it was.
    """
    started = time.monotonic()
    found = read_run(run)
    with tempfile.TemporaryDirectory(prefix="tensorese-") as name:
        scratch = Path(name)
        built = prepare_run(found, on_step, prepack=prepack)
        tuned = scratch / "tuned.so"
        on_step(f"compiling {len(built.applied.tuned)} tuned kernels")
        build_library(built.applied.module, found.target, tuned)
        build_library(built.direct, found.target, scratch / "untuned.so")
        libraries = {"tuned": tuned, "untuned": scratch / "untuned.so"}
        with make_arena(built, scratch, libraries) as arena:
            on_step("verifying outputs")
            certificate = _certificate(built, tuned) | {"verification": verify(built, arena)}
            on_step(f"timing {', '.join(arena.contenders)}")
            certificate |= measure(built, arena, timing or Timing())
        certificate["seconds"] = time.monotonic() - started
        _ship(built, tuned, certificate)
    return certificate


def prepare_run(run: Run, on_step: Step, *, prepack: bool = True) -> Built:
    """The network again, by the road its tasks came; its programs applied."""
    on_step(f"preparing {run.network}")
    network = load_network(run.model)
    prepared = prepare(network.module, run.target, prepack=run.prepack, winograd=run.winograd)
    applied = apply_programs(prepared, run.best, run.target, prepack=prepack)
    unknown = set(run.best) - set(applied.workloads)
    if unknown:
        raise DeployError(
            f"every tuned task must be in {run.model}, but {len(unknown)} of {len(run.best)} are "
            f"not ({min(unknown)}); was the model file changed? tune into a new folder"
        )
    packed = prepack and run.prepack
    return Built(run=run, network=network, prepared=prepared, applied=applied, packed=packed)


def make_arena(built: Built, scratch: Path, libraries: Mapping[str, Path]) -> Arena:
    """Our libraries and whatever else can run the model here, loaded and ready."""
    run = built.run
    arena = Arena(scratch, built.network.example(SEED), Target.from_json(run.target).threads)
    signature = built.signature.to_dict()
    try:
        for name, path in libraries.items():
            arena.add(name, {"kind": "library", "library": str(path), "signature": signature})
        for name in available() if run.kind == "llvm" else []:
            arena.add(name, {"kind": name, "model": run.model}, optional=True)
    except BaseException:
        arena.__exit__()
        raise
    return arena


def verify(built: Built, arena: Arena) -> dict[str, Any]:
    """Outputs against the untuned build and the source; raises where they differ."""
    source = "onnxruntime" if is_onnx(built.run.model) else "torch"
    got = arena.outputs("tuned")
    allowed = [tolerance(str(a.dtype), **built.depth) for a in got]
    checks: dict[str, Any] = {"seed": SEED, "against": {}, **built.depth}
    for name in ("untuned", source):
        if name in arena.contenders:
            want = arena.outputs(name)
        elif built.run.kind != "llvm":  # the source takes no part in the race, but it can tell
            want = built.network.reference(built.network.example(SEED))
        else:
            checks["against"][name] = {"passed": None, "note": arena.absent.get(name, "absent")}
            continue
        verdict = compare(got, want, allowed)
        if not verdict.passed:
            raise DeployError(
                f"outputs must agree with {name} to {verdict.tolerance:.2g}, but {verdict.note}"
                f"{_first_difference(built, arena)}; the library is not shipped"
            )
        checks["against"][name] = verdict.to_dict()
    _drop_those_that_differ(arena, got, allowed, {"tuned", *checks["against"]})
    return checks


def _drop_those_that_differ(
    arena: Arena, got: list[Array], allowed: list[float], checked: set[str]
) -> None:
    """A rival that computes something else is no rival."""
    for name in set(arena.contenders) - checked:
        try:
            verdict = compare(got, arena.outputs(name), allowed)
            note = "" if verdict.passed else f"not compared: {verdict.note}"
        except DeployError as error:
            note = str(error)
        if note:
            arena.drop(name, note)


def _first_difference(built: Built, arena: Arena) -> str:
    """Which kernel first wrote something else than its untuned form, if one can be named."""
    for (name, got), (_, want) in zip(
        arena.values("tuned"), arena.values(_same_kernels(built, arena)), strict=False
    ):
        if not difference(got, want) <= tolerance(str(got.dtype), **built.depth):
            found = built.applied.tuned.get(name, built.applied.untuned.get(name, ""))
            best = built.run.best.get(found)
            what = f"the program of {best.name} ({found})" if best else f"{name}, which is untuned"
            return f"; the first wrong kernel is {what}"
    return "; kernel by kernel both builds agree"


def _same_kernels(built: Built, arena: Arena) -> str:
    """The contender with the tuned library's kernels, none of them tuned."""
    if not built.by_winograd:
        return "untuned"
    path = arena.scratch / "same_kernels.so"
    build_library(built.prepared, built.run.target, path)
    signature = built.signature.to_dict()
    arena.add(path.stem, {"kind": "library", "library": str(path), "signature": signature})
    return path.stem


def measure(built: Built, arena: Arena, timing: Timing) -> dict[str, Any]:
    """Latencies of all systems, and where the tuned library's time goes."""
    latency = arena.time(timing.rounds, timing.secs)
    reply = arena.contenders["tuned"].ask({"op": "profile", "runs": PROFILE_RUNS})
    rows = kernel_rows(reply["kernels"], built.applied, built.run)
    end_to_end = float(latency["tuned"]["latency"])
    return {
        "latency": latency,
        "absent": dict(arena.absent),
        "threads": arena.threads,
        "explanation": explain(end_to_end, rows, built.run),
        "kernels": rows,
    }


def _certificate(built: Built, library: Path) -> dict[str, Any]:
    run = built.run
    names = {str(task["workload"]): str(task["name"]) for task in run.tasks}
    tuned, untuned = set(built.applied.tuned.values()), set(built.applied.untuned.values())
    return {
        "version": 1,
        "model": run.model,
        "network": run.network,
        "target": run.target,
        "platform": run.platform,
        "signature": built.signature.to_dict(),
        "library": {"sha256": sha256(library), "bytes": library.stat().st_size},
        "weights": {"sha256": weights_sha256(built.network.module), "packed": built.packed},
        "winograd": built.by_winograd,
        "toolchain": toolchain_of(run.kind),
        "host": os.uname().nodename,
        "time": time.time(),
        "tasks": {
            "tuned": {found: names.get(found, "") for found in sorted(tuned)},
            "untuned": {found: names.get(found, "") for found in sorted(untuned)},
        },
    }


def weights_sha256(module: Any) -> str:
    """Of the network's constants as it was read, in order: which weights these are."""
    tvm = import_tvm()
    digest = hashlib.sha256()

    def see(node: Any) -> None:
        if isinstance(node, tvm.ir.GenericConst):
            digest.update(node.value.numpy().tobytes())

    tvm.relax.analysis.post_order_visit(module["main"], see)
    return digest.hexdigest()


def _ship(built: Built, library: Path, certificate: dict[str, Any]) -> None:
    run = built.run
    certificate["database"] = write_database(run, built.applied.workloads, run.path / DATABASE)
    aside = run.path / f".{run.library.name}.{os.getpid()}"
    try:
        shutil.copyfile(library, aside)  # the scratch folder may lie on another disk
        aside.replace(run.library)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise DeployError(f"{run.library} cannot be written: {error.strerror}") from None
    write_object(run.path / CERTIFICATE, certificate)
