"""The Python face of the main job: `tensorese.tune` and `tensorese.load`."""

from __future__ import annotations

import dataclasses
import importlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorese.errors import TargetError
from tensorese.measure.crew import start_early
from tensorese.measure.peak import known_peak
from tensorese.measure.tuning_farm import IN_NETWORK, TUNING, TuningFarm
from tensorese.search.contracts import Ranker
from tensorese.search.loop.config import TuneConfig
from tensorese.search.loop.events import Announcer, Callback
from tensorese.search.loop.first_batch import open_records
from tensorese.search.loop.tune_tasks import Run, tune_tasks
from tensorese.search.rankers.by_name import ranker_named
from tensorese.targets import parse_target, platform_of
from tensorese.tvm_env import import_tvm


def tune(
    model: Any,
    target: str = "host",
    *,
    trials: int | None = None,
    minutes: float | None = None,
    ranker: str | Ranker = "auto",
    out: str | Path | None = None,
    tasks: Sequence[str] = (),
    early_stopping: int = 0,
    warm: Sequence[str | Path] = (),
    platform: str = "",
    callbacks: Iterable[Callback] = (),
    seed: int = 0,
    prepack: bool = True,
    winograd: bool = True,
    cache: str = "rotated",
    compile: bool = True,
    started: float | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, float | Sequence[float]] | None = None,
) -> Run:
    """Tunes a model on this machine and builds the verified library into the run folder.

    `model` is what `tensorese tune` takes, or a `torch.export.ExportedProgram`. The same call
    again resumes; limits count over all sittings. Without limits it ends after ten minutes.
    Without `prepack` weights keep the order the network has them in, for kernels to be used where
    weights come at run time; without `winograd` every convolution is computed directly, for the
    smallest rounding errors. `cache="hot"` times programs with their weights in the near caches,
    which no kernel finds in a network (CPUs). What an ONNX file leaves open is fixed by `shapes` of
    inputs, `dims` that the file names, and `values` of inputs that become constants.
    """
    begun = time.time() if started is None else started
    config = TuneConfig(
        trials=trials,
        minutes=minutes,
        tasks=tuple(tasks),
        early_stopping=early_stopping,
        seed=seed,
        prepack=prepack,
        winograd=winograd,
    )
    peak = None
    if target == "host":
        peak = known_peak()  # before any process of ours is busy
        start_early("llvm")  # its TVM comes up beside ours
    parsed = parse_target(target)
    _require_device(parsed)
    where = platform_of(parsed, platform)
    announcer = Announcer(callbacks)
    on_cpu = json.loads(parsed)["kind"] == "llvm"
    if on_cpu and peak is None:
        peak = known_peak()
    farm_config = IN_NETWORK if on_cpu and cache == "rotated" else TUNING
    with (
        open_records([Path(path) for path in warm], where.name) as records,
        # It comes up while the model is read.
        TuningFarm(parsed, farm_config, platform=where) as farm,
    ):
        chosen, said = ranker_named(ranker, where) if isinstance(ranker, str) else (ranker, "")
        from tensorese.workloads import load_network, tasks_of

        network = load_network(model, shapes=shapes, dims=dims, values=values)
        for note in filter(None, (said, *network.notes)):
            announcer.on_note(note)
        run = tune_tasks(
            tasks_of(network, parsed, prepack=prepack, winograd=winograd),
            target=parsed,
            platform=where,
            measurer=farm,
            ranker=chosen,
            out=Path(out) if out is not None else default_out(network.name),
            config=config,
            model=network.source or network.name,
            network=network.name,
            callbacks=[announcer],
            started=begun,
            records=records,
            compiles=compile,
            peak_gflops=peak,
        )
    if not isinstance(model, str | Path):
        _keep(model, run.path)
    if not compile:
        return run
    return dataclasses.replace(run, certificate=build(run.path, announcer.on_note))


def build(run: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The library, its certificate and the report, from what the run folder holds."""
    deploy: Any = importlib.import_module("tensorese.deploy")
    report: Any = importlib.import_module("tensorese.report")
    certificate: dict[str, Any] = deploy.compile_run(run, on_step=say)
    report.write_report(run)
    return certificate


def load(run: str | Path) -> Any:
    """The tuned library of a run folder: callable on numpy arrays and torch tensors."""
    deploy: Any = importlib.import_module("tensorese.deploy")
    return deploy.load(Path(run))


def _keep(program: Any, run: Path) -> None:
    """A model that was never a file is kept in its run, for whoever compiles that again."""
    torch: Any = importlib.import_module("torch")
    folder: Any = importlib.import_module("tensorese.deploy.folder")
    torch.export.save(program, run / folder.MODEL)


def default_out(name: str) -> Path:
    return Path("runs") / name


def _require_device(target: str) -> None:
    kind = str(json.loads(target)["kind"])
    if kind == "llvm":
        return
    if not import_tvm().device(kind, 0).exist:
        raise TargetError(
            f"tuning for {kind} needs such a device on this machine, but none was found; "
            "name target 'host', or run it where the device is"
        )
