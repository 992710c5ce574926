"""`compile_run`: from a tuned run to a verified, timed library with its certificate."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tensorese.deploy import torch_cuda
from tensorese.deploy.arena import Arena, Contender
from tensorese.deploy.build import build_library
from tensorese.deploy.built import Built
from tensorese.deploy.certificate import certificate_of
from tensorese.deploy.database import write_database
from tensorese.deploy.disturbance import others, read_clocks, slowed, unsteady
from tensorese.deploy.errors import DeployError
from tensorese.deploy.explain import explain, kernel_rows
from tensorese.deploy.folder import TunedRun, read_run
from tensorese.deploy.here import why_not_here
from tensorese.deploy.play_off import PlayOff, choices_of, play_off
from tensorese.deploy.prepare import Step, prepare_shapes
from tensorese.deploy.systems import RIVALS, is_onnx, quick
from tensorese.deploy.verify import WrongKernel, inputs_of, verify
from tensorese.records.run_folder import CERTIFICATE, DATABASE, claim_run, write_object
from tensorese.scratch import Scratch
from tensorese.targets import Target
from tensorese.workloads import Network

PROFILE_RUNS = 10
_FOR_A_RIVAL = 15.0  # seconds to export, load and time it
_AFTER_PLAY_OFF = 25.0  # seconds to load systems, verify and time them
_AFTER = 1.5  # seconds for what follows the timing: the library is copied, the report drawn


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long systems are compared."""

    rounds: int = 7
    secs: float = 0.4
    """Per system and round."""


def compile_run(
    run: str | os.PathLike[str],
    *,
    on_step: Step = lambda _: None,
    timing: Timing | None = None,
    prepack: bool = True,
    until: float | None = None,
    networks: Sequence[Network] | None = None,
    timed: bool = True,
    deciding: float = math.inf,
) -> dict[str, Any]:
    """Builds the network with its best programs, verifies and times it; returns the certificate.

    Without `prepack` the programs read weights in the network's own order. A kernel whose outputs
    differ is replaced by its untuned form; where that does not help nothing is shipped, and an
    earlier library stays as it was. Systems are timed as long as `until`, a time of
    `time.monotonic`, allows; not `timed`, none is. Between finalists of a task the network decides,
    in `deciding` seconds at most. `networks` are the run's, one a shape, where they were read
    already: each is verified and timed. A library that cannot run on this machine is built, not
    verified, and its certificate says so.
    """
    started = time.monotonic()
    tuned_run = read_run(run)
    elsewhere = why_not_here(Target.from_json(tuned_run.target))
    played: PlayOff | None = None
    with (
        claim_run(tuned_run.path),
        Scratch("tensorese-compile-") as scratch,
    ):
        measured = timed and not elsewhere and not tuned_run.device
        early = []
        if measured and tuned_run.kind == "cuda":  # the GPU's process comes up meanwhile
            early = [Contender("tuned", scratch, "library", warm=True)]
        builts = prepare_shapes(tuned_run, on_step, prepack=prepack, networks=networks)
        tuned = scratch / "tuned.so"
        if elsewhere:
            on_step(f"{_compiling(builts[0])}; they are not verified: {elsewhere}")
            builts[0].build(tuned)
            skipped = {"against": {}, "replaced": {}, "skipped": elsewhere}
            results: list[dict[str, Any]] = [{"verification": skipped} for _ in builts]
        else:
            look = _Look(scratch, on_step, timing or Timing(), until, early)
            if measured and prepack and tuned_run.kind == "llvm" and len(builts) == 1:
                builts, tuned = look.decided(builts[0], tuned, deciding)
            one = look.timed if measured else look.untimed
            builts, tuned, results = _every_shape(builts, tuned, one)
            played = look.played
        certificate = certificate_of(builts, tuned) | together(builts, results)
        certificate["seconds"] = time.monotonic() - started
        _ship(builts[0], tuned, certificate, played)
    return certificate


Looked = tuple[Built, Path, dict[str, Any]]
"""A shape as it is now, the library it is in, and what was found out about it."""


def _every_shape(
    builts: Sequence[Built], library: Path, look: Callable[[Built, Path, int], Looked]
) -> tuple[list[Built], Path, list[dict[str, Any]]]:
    """`look`, given how many shapes are left, may build the library anew: then the shapes before
    are looked at again."""
    builts, results, replaced = list(builts), dict[int, dict[str, Any]](), dict[str, Any]()
    while left := [at for at in range(len(builts)) if at not in results]:
        built, path, result = look(builts[left[0]], library, len(left))
        if path != library:
            builts, library = [one.as_in(built) for one in builts], path
            results.clear()
        results[left[0]] = result
        replaced |= result["verification"]["replaced"]
    for result in results.values():
        result["verification"]["replaced"] = replaced
    return builts, library, [results[at] for at in range(len(builts))]


def together(builts: Sequence[Built], results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What is said of the last shape stands for the library; all of them are listed."""
    if len(builts) == 1:
        return results[0]
    named = [{"shape": b.shape, **r} for b, r in zip(builts, results, strict=True)]
    return {**named[-1], "shapes": named}


def _compiling(built: Built) -> str:
    return f"compiling {len(built.applied.tuned)} tuned kernels"


class _Look:
    """Verifies one shape of a library after the other, and times it."""

    def __init__(
        self,
        scratch: Path,
        on_step: Step,
        timing: Timing,
        until: float | None,
        early: Sequence[Contender],
    ) -> None:
        self.scratch = scratch
        self.on_step = on_step
        self.timing = timing
        self.until = until
        self.early = early
        self.played: PlayOff | None = None

    def decided(self, built: Built, library: Path, deciding: float) -> tuple[list[Built], Path]:
        """Built with the programs that the network prefers, where there is a choice."""
        if not choices_of(built):
            return [built], library
        self.on_step(_compiling(built))
        started = time.monotonic()
        built.build(library)
        building = time.monotonic() - started
        if self.until is not None:
            left = self.until - time.monotonic() - building - _AFTER_PLAY_OFF
            deciding = min(deciding, left)
        built, library, self.played = play_off(
            built, library, self.scratch, self.on_step, building=building, allowed=deciding
        )
        return [built], library

    def timed(self, built: Built, library: Path, left: int) -> Looked:
        run = built.run
        if not library.exists():
            self.on_step(_compiling(built))
            built.build(library)
        libraries = {"tuned": library}
        if run.kind == "llvm":  # on a GPU it takes as long as ours and tells little
            libraries["untuned"] = self.scratch / f"untuned-{built.entry}.so"
            build_library(built.direct, run.target, libraries["untuned"])
        now = time.monotonic()
        until = None if self.until is None else now + (self.until - now) / left
        early, self.early = self.early, []
        with make_arena(built, self.scratch, libraries, until, early=early) as arena:
            self.on_step(f"verifying outputs{_for(built)}")
            built, library, checks = self._verified(built, arena, library)
            self.on_step(f"timing {', '.join(arena.contenders)}{_for(built)}")
            return (
                built,
                library,
                {"verification": checks} | measure(built, arena, self.timing, until),
            )

    def untimed(self, built: Built, library: Path, left: int) -> Looked:
        """Verified by the source alone, which loads meanwhile, or by the untuned build."""
        run = built.run
        threads = Target.from_json(run.target).threads
        with Arena(self.scratch, inputs_of(built), threads) as arena:
            with ThreadPoolExecutor(1) as pool:
                loading = pool.submit(_add_source, arena, run)
                if not library.exists():
                    self.on_step(_compiling(built))
                    built.build(library)
                loading.result()
            if not arena.contenders and run.kind == "llvm":
                untuned = self.scratch / f"untuned-{built.entry}.so"
                build_library(built.direct, run.target, untuned)
                arena.add("untuned", built.contender(untuned, entry="main"))
            arena.add("tuned", built.contender(library))
            self.on_step(f"verifying outputs{_for(built)}")
            built, library, checks = self._verified(built, arena, library)
        return built, library, {"verification": checks}

    def _verified(
        self, built: Built, arena: Arena, library: Path
    ) -> tuple[Built, Path, dict[str, Any]]:
        """The library with every kernel that fails replaced, and the checks.

        By the program that was fastest alone, where the network preferred another, else by its
        untuned form. One that fails as a CUDA graph is tried kernel by kernel, which alone can tell
        who is to blame.
        """
        alone = {} if self.played is None else self.played.alone(built)
        replaced: dict[str, dict[str, Any]] = {}
        graphs, why_not = built.graphs, ""
        for attempt in itertools.count(1):
            try:
                checks = verify(built, arena) | {"replaced": replaced}
                if graphs:
                    checks["cuda_graph"] = {"used": built.graphs, "why_not": why_not}
                return built, library, checks
            except WrongKernel as wrong:
                id_, name = wrong.workload, built.run.best[wrong.workload].name
                if id_ in alone:
                    self.on_step(f"{wrong}; {name} takes the program that was fastest alone")
                    built = built.taking({**built.run.best, id_: alone.pop(id_)})
                else:
                    replaced[id_] = {"name": name, "error": wrong.error, "why": str(wrong)}
                    self.on_step(f"{wrong}; {name} is replaced by its untuned form")
                    built, why_not = replace(built.without(id_), graphs=graphs), ""
            except DeployError as error:
                if not built.graphs:
                    raise
                built, why_not = replace(built, graphs=False), str(error)
                self.on_step(f"the network fails as a CUDA graph, so it is built without: {error}")
            library = built.build(library.with_name(f"{library.stem}-{attempt}.so"))
            arena.swap("tuned", built.contender(library))
        raise AssertionError("the loop ends by returning or raising")


def _for(built: Built) -> str:
    return f" for {built.shape}" if built.run.source else ""


def _add_source(arena: Arena, run: TunedRun) -> None:
    if run.kind == "llvm":  # elsewhere it is asked in this process
        name = source_of(run.model)
        arena.add(name, {"kind": name, "model": run.model}, optional=True)


def source_of(model: str) -> str:
    """The system that the network was written for."""
    return "onnxruntime" if is_onnx(model) else "torch"


def make_arena(
    built: Built,
    scratch: Path,
    libraries: Mapping[str, Path],
    until: float | None = None,
    *,
    rivals: Mapping[str, Mapping[str, Any]] | None = None,
    early: Sequence[Contender] = (),
) -> Arena:
    """Our libraries and whatever else can run the model here (or `rivals`), loaded and ready.

    The source always checks whether outputs are right; a rival needs time before `until`.
    """
    run = built.run
    source = source_of(run.model)
    rivals = rivals_of(run) if rivals is None else rivals
    arena = Arena(scratch, inputs_of(built), Target.from_json(run.target).threads, early)
    try:
        for name, path in libraries.items():
            entry = "main" if name == "untuned" else built.entry  # built for one shape, or all
            arena.add(name, built.contender(path, entry=entry))
        for name in list(rivals):
            if name != source and until is not None and time.monotonic() > until - _FOR_A_RIVAL:
                arena.absent[name] = "left out: no time was left for it"
        arena.add_rivals({n: spec for n, spec in rivals.items() if n not in arena.absent})
    except BaseException:
        arena.__exit__()
        raise
    return arena


def rivals_of(run: TunedRun, *, every: bool = False) -> dict[str, dict[str, Any]]:
    """The other systems for this model, by name: those that load quickly, or `every` one."""
    if run.kind == "llvm":
        names = RIVALS if every else quick()
        return {name: {"kind": name, "model": run.model} for name in names}
    if run.kind != "cuda":
        return {}
    ways = [way for way in torch_cuda.rivals() if every or way == torch_cuda.PLAIN]
    return {way.name: way.spec(run.model) for way in ways}


def measure(
    built: Built, arena: Arena, timing: Timing, until: float | None = None
) -> dict[str, Any]:
    """Latencies of all systems, and where the tuned library's time goes."""
    before = read_clocks(arena.processes)
    ends = None if until is None else until - _AFTER - PROFILE_RUNS * arena.first["tuned"]
    latency = arena.time(timing.rounds, timing.secs, until=ends)
    disturbed = others(before, read_clocks(arena.processes)) + unsteady(latency)
    inside = arena.inside("tuned", PROFILE_RUNS)
    rows = kernel_rows(inside["kernels"], built.applied, built.run)
    end_to_end = float(latency["tuned"]["latency"])
    return {
        "latency": latency,
        "disturbed": disturbed + slowed(rows),
        "absent": dict(arena.absent),
        "threads": arena.threads,
        "explanation": explain(end_to_end, rows, built.run, inside.get("device")),
        "kernels": rows,
        **({"from_host": inside["from_host"]} if "from_host" in inside else {}),
    }


def _ship(built: Built, library: Path, certificate: dict[str, Any], played: PlayOff | None) -> None:
    run = built.run
    if played is not None:
        certificate["play_off"] = played.to_dict(built)
    certificate["database"] = write_database(run, built.applied.workloads, run.path / DATABASE)
    aside = run.path / f".{run.library.name}.{os.getpid()}"
    try:
        shutil.copyfile(library, aside)  # the scratch folder may lie on another disk
        aside.replace(run.library)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise DeployError(f"{run.library} cannot be written: {error.strerror}") from None
    if played is not None:
        played.keep(built)
    write_object(run.path / CERTIFICATE, certificate)
