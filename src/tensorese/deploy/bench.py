"""`bench_run`: all systems once more, interleaved, on a library that is already verified."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tensorese.deploy.build import build_library
from tensorese.deploy.built import Built
from tensorese.deploy.compile import Timing, make_arena, measure, rivals_of, together
from tensorese.deploy.errors import DeployError
from tensorese.deploy.folder import read_run
from tensorese.deploy.library import load
from tensorese.deploy.prepare import Step, prepare_run, prepare_shapes
from tensorese.deploy.verify import compare_rivals
from tensorese.records.run_folder import BENCH, write_object
from tensorese.scratch import Scratch


def bench_run(
    run: str | os.PathLike[str],
    *,
    on_step: Step = lambda _: None,
    timing: Timing | None = None,
    untuned: bool | None = None,
    unpacked: bool = False,
) -> dict[str, Any]:
    """Latencies of the shipped library and its rivals; also written to `bench.json`.

    `untuned` adds the network without our programs (by default on a CPU), `unpacked` the same
    programs on weights left in the network's own order.
    """
    tuned_run = read_run(run)
    if not os.access(tuned_run.path, os.W_OK):
        raise DeployError(
            f"{tuned_run.path} must be writable for {BENCH}, but it is not; copy the run, or check "
            "its permissions"
        )
    load(run)  # a missing or foreign library is answered before anything is built
    with Scratch("tensorese-bench-") as scratch:
        builts = prepare_shapes(tuned_run, on_step)
        libraries = {"tuned": tuned_run.library}
        if unpacked:
            libraries["unpacked"] = scratch / "unpacked.so"
            on_step("compiling without packed weights")
            module = prepare_run(tuned_run, lambda _: None, prepack=False).applied.module
            build_library(module, tuned_run.target, libraries["unpacked"])
        wants_untuned = (tuned_run.kind == "llvm") if untuned is None else untuned
        results = []
        for built in builts:
            if wants_untuned:
                libraries["untuned"] = scratch / f"untuned-{built.entry}.so"
                on_step("compiling the untuned network")
                build_library(built.direct, tuned_run.target, libraries["untuned"])
            results.append(_timed(built, scratch, libraries, timing or Timing(), on_step))
    result = together(builts, results)
    result |= {"model": tuned_run.model, "network": tuned_run.network, "target": tuned_run.target}
    write_object(tuned_run.path / BENCH, result)
    return result


def _timed(
    built: Built, scratch: Path, libraries: dict[str, Path], timing: Timing, on_step: Step
) -> dict[str, Any]:
    rivals = rivals_of(built.run, every=True)
    on_step(f"loading {', '.join(rivals) or 'it'}")
    with make_arena(built, scratch, libraries, rivals=rivals) as arena:
        compare_rivals(built, arena)
        on_step(f"timing {', '.join(arena.contenders)}")
        return measure(built, arena, timing)
