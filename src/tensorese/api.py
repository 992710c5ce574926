"""The Python face of the main job: `tensorese.tune` and `tensorese.load`."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorese.collect.fleet.node import NodeSettings, run_of
from tensorese.collect.fleet.ray_cluster import RayConfig, check_reachable, ray_fleet
from tensorese.errors import TargetError
from tensorese.measure.base import Measurer
from tensorese.measure.candidates import from_module
from tensorese.measure.cores import alone_on
from tensorese.measure.crew import start_early
from tensorese.measure.farm import Farm
from tensorese.measure.linking import foreign_triple, linker_for
from tensorese.measure.lowering import RowSource, lowering_farm
from tensorese.measure.peak import known_peak
from tensorese.measure.rpc_config import FleetConfig
from tensorese.measure.tuning_farm import IN_NETWORK, TUNING, TuningFarm
from tensorese.measure.tuning_rpc import TuningRpc
from tensorese.records.nouns import Platform, Workload
from tensorese.records.run_entries import EitherWay
from tensorese.records.run_folder import HEAD, INPUTS, MODEL, RunFolder, claim_run, recorded_ways
from tensorese.records.task import Task
from tensorese.records.user_store import UserStore
from tensorese.search.contracts import Proposer, Ranker
from tensorese.search.loop.budget import PLAY_OFF, expected_trials
from tensorese.search.loop.config import TuneConfig, TuneError
from tensorese.search.loop.events import Announcer, Callback
from tensorese.search.loop.first_batch import open_records
from tensorese.search.loop.instant import KNOWN, choose_instantly, judges_named
from tensorese.search.loop.reuse import forget, prefer, user_store
from tensorese.search.loop.tune_tasks import RunOutcome, tune_tasks
from tensorese.search.proposers.by_name import DEFAULT, check_name
from tensorese.search.rankers.by_name import ranker_named
from tensorese.search.rankers.guided import read_lowered
from tensorese.targets import Target, usable_cores
from tensorese.tvm_env import import_tvm

if TYPE_CHECKING:
    from tensorese.workloads.choice import Choice

_DECIDING = 0.1  # of a run, at most, for the other way to compute convolutions


def tune(
    model: Any,
    inputs: Any = None,
    *,
    target: str = "host",
    trials: int | None = None,
    minutes: float | None = None,
    ranker: str | Ranker = "auto",
    proposer: str | Proposer = DEFAULT,
    out: str | Path | None = None,
    tasks: Sequence[str] = (),
    early_stopping: int = 0,
    warm: Sequence[str | Path] = (),
    platform: str = "",
    callbacks: Iterable[Callback] = (),
    seed: int = 0,
    prepack: bool = True,
    winograd: bool = True,
    attention: bool = True,
    cache: str = "rotated",
    compile: bool = True,
    share: bool = False,
    reuse: bool = True,
    fleet: FleetConfig | RayConfig | None = None,
    started: float | None = None,
    shapes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]] | None = None,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    values: Mapping[str, float | Sequence[float]] | None = None,
) -> RunOutcome:
    """Tunes a model on this machine and builds the verified library into the run folder.

    `model` is what `tensorese tune` takes, a `torch.export.ExportedProgram`, or an `nn.Module`
    with its `inputs`: a tensor, a tuple of them, or a dict of those passed by name. With a model
    that needs none, `inputs` is a .npz file or a dict of arrays that the library is verified on.
    The same call again resumes; limits count over all sittings. Without limits it ends after ten
    minutes.
    Without `prepack` weights keep the order the network has them in, for kernels to be used where
    weights come at run time; without `winograd` every convolution is computed directly, for the
    smallest rounding errors, and without `attention` that goes operator by operator. It waits while
    another process tunes or collects on the same cores, unless `share` is given. `cache="hot"`
    times programs with their weights in the near caches, which no kernel finds in a network (CPUs).
    Without `reuse` it neither reads nor feeds the store of this user's earlier runs. With a `fleet`
    programs are timed on the devices of a TVM tracker, and built here, or built and timed on the
    nodes of a Ray cluster; `target` and `platform` are theirs and to be named, and the library is
    for them.
    `proposer` is a name (`evolution`, `annealing`, `random`, `tlm`, `portfolio`) or an object with
    a ranker of its own. What an ONNX file leaves open is fixed by `shapes` of inputs, `dims` that
    the file names, and `values` of inputs that become constants. A list of shapes, or of extents,
    makes one library that takes each of them. `started` is when its time began, on
    `time.monotonic`'s clock.
    """
    if isinstance(proposer, str):
        check_name(proposer)
    begun = time.monotonic() if started is None else started
    config = TuneConfig(
        trials=trials,
        minutes=minutes,
        tasks=tuple(tasks),
        early_stopping=early_stopping,
        seed=seed,
        prepack=prepack,
        winograd=winograd,
        attention=attention,
    )
    if fleet is not None and config.trials == 0:
        raise TuneError(
            f"--trials 0 measures nothing, but {fleet} are given; leave one of them out"
        )
    if target != "host" and (compile or isinstance(fleet, FleetConfig)):
        linker_for(Target.parse(target).to_json())  # what lacks is said before an hour of tuning
    if config.trials == 0:
        return _tune_instantly(
            model,
            inputs,
            config=config,
            target=Target.parse(target),
            ranker=ranker,
            proposer=proposer if isinstance(proposer, str) else proposer.name,
            out=out,
            warm=warm,
            platform=platform,
            announcer=Announcer(callbacks),
            compile=compile,
            begun=begun,
            reuse=reuse,
            cache=cache,
            fixed={"shapes": shapes, "dims": dims, "values": values},
        )
    announcer = Announcer(callbacks)
    with ExitStack() as stack:
        # What is refused is so before it waits for anybody.
        if target != "host" and fleet is None:
            _require_device(Target.parse(target))
        if isinstance(fleet, RayConfig):
            check_reachable(fleet)
        if out is not None and (Path(out) / HEAD).exists():
            stack.enter_context(claim_run(Path(out)))
        if fleet is None or fleet.address == "local":
            # What is timed elsewhere, nobody here disturbs.
            waited = alone_on(usable_cores(), share=share, say=announcer.on_note)
            begun += stack.enter_context(waited)
        peak = None
        if target == "host" and fleet is None:
            peak = known_peak()  # before any process of ours is busy
            start_early("llvm")  # its TVM comes up beside ours
        parsed = Target.parse(target)
        where = parsed.platform(platform)
        on_cpu = parsed.is_cpu
        if on_cpu and peak is None and fleet is None:
            peak = known_peak()
        if isinstance(fleet, FleetConfig):
            cache = "hot"  # copies of weights are not turned there
        records = stack.enter_context(open_records([Path(one) for one in warm], where.name))
        measuring = stack.enter_context(ExitStack())
        site = _Site(parsed, where, cache, fleet, measuring)  # it comes up while the model is read
        store = user_store(parsed, where, cache=_timed(on_cpu, cache)) if reuse else None
        lowered = read_lowered(RowSource(parsed, lambda: site.workers))
        chosen, remark = (
            ranker_named(ranker, where, features=lowered)
            if isinstance(ranker, str)
            else (ranker, "")
        )
        from tensorese.workloads import load_variants, source_of_all
        from tensorese.workloads.either_way import said

        reading = time.monotonic()
        source, arrays = _source(model, inputs)
        networks = load_variants(source, shapes=shapes, dims=dims, values=values)
        network, arrays = networks[0], _checked(networks, arrays)
        where_to = Path(out) if out is not None else default_out(network.name)
        work = _work(networks, config, site, recorded_ways(where_to))
        preparing = work.prepared - reading
        for note in filter(None, (remark, *network.notes)):
            announcer.on_note(note)
        stack.enter_context(claim_run(where_to))
        run = tune_tasks(
            work.tasks,
            target=parsed,
            platform=where,
            measurer=site.measurer(announcer.on_note),
            ranker=chosen,
            proposer=proposer,
            out=where_to,
            config=config,
            model=source_of_all(networks) or network.name,
            network=network.name,
            callbacks=[announcer],
            started=begun,
            records=records,
            compiles=len(networks) if compile else 0,
            preparing=preparing,
            peak_gflops=peak,
            store=store,
            device="" if fleet is None else str(fleet),
            ways=work.ways,
        )
        measuring.close()
        if sentence := said(work.choice, run.ways):
            announcer.on_note(sentence)
        _keep(source, arrays, run.path)
        if not compile:
            return run
        return _built(run, begun, config, networks, work.tasks, store, announcer.on_note)


class _Site:
    """Where programs are measured: here, on a tracker's devices, or on a cluster's nodes."""

    def __init__(
        self,
        target: Target,
        platform: Platform,
        cache: str,
        fleet: FleetConfig | RayConfig | None,
        stack: ExitStack,
    ) -> None:
        self.target, self.platform, self.fleet = target, platform, fleet
        self.farm_config = IN_NETWORK if target.is_cpu and cache == "rotated" else TUNING
        self._stack = stack
        self._farm: Farm | None = None
        if fleet is None:
            self._farm = TuningFarm(target, self.farm_config, platform=platform)
        elif isinstance(fleet, FleetConfig):
            self._farm = TuningRpc(target, fleet, self.farm_config, platform=platform)
        if self._farm:
            stack.enter_context(self._farm)

    @functools.cached_property
    def workers(self) -> Farm:
        """Beside a cluster's nodes there are some only for a model that reads lowered programs."""
        return self._farm or self._stack.enter_context(lowering_farm(self.target))

    def measurer(self, say: Callable[[str], None]) -> Measurer | Callable[[Path], Measurer]:
        """Nodes are told where the run keeps its records."""
        return self._farm or functools.partial(self._nodes, say)

    def _nodes(self, say: Callable[[str], None], store: Path) -> Measurer:
        assert isinstance(self.fleet, RayConfig)
        settings = NodeSettings(
            target=self.target,
            platform=self.platform.name,
            run=run_of(store, self.platform.name),
            farm=self.farm_config,
            tunes=True,
        )
        # It is the search that plans.
        return self._stack.enter_context(ray_fleet(self.fleet, settings, planners=1, say=say))

    def latencies(self, kernels: Sequence[tuple[Workload, Any]]) -> list[float]:
        """Of kernels as they stand; NaN for one that does not run. No trials: no store has them."""
        candidates = [from_module(module, workload) for workload, module in kernels]
        return [measurement.latency for measurement in self.workers.measure(candidates)]


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What there is to tune, and to decide on."""

    tasks: list[Task]
    choice: Choice
    ways: list[EitherWay]
    prepared: float
    """When the network had been prepared as it is estimated, on `time.monotonic`'s clock."""


def _work(
    networks: Sequence[Any], config: TuneConfig, site: _Site, known: Sequence[EitherWay] | None
) -> _Work:
    """`known` are the ways that a run to be resumed had to decide on."""
    from tensorese.workloads import tasks_of_all
    from tensorese.workloads.either_way import choice_of, tasks_either_way

    if known is None and (site.fleet is not None or config.tasks or not site.target.is_cpu):
        known = ()  # on a device elsewhere, or for a part of the network, nothing is decided
    switches = {"winograd": config.winograd, "attention": config.attention}
    known = None if known is None else [one for one in known if switches[one.setting]]
    choice = choice_of(known or ())

    def extract(how: Choice) -> list[Task]:
        return tasks_of_all(
            networks,
            site.target.to_json(),
            prepack=config.prepack,
            winograd=config.winograd and how,
            attention=config.attention and how,
            fixed=True,
        )

    now, prepared = extract(choice), time.monotonic()
    tasks, ways = tasks_either_way(
        now,
        choice,
        extract,
        known=known,
        trials=_DECIDING * expected_trials(config),
        timed=site.latencies,
    )
    return _Work(tasks=tasks, choice=choice, ways=ways, prepared=prepared)


def _built(
    run: RunOutcome,
    begun: float,
    config: TuneConfig,
    networks: Sequence[Any],
    tasks: Sequence[Task],
    store: UserStore | None,
    say: Callable[[str], None],
) -> RunOutcome:
    """With its library; the user's store learns which programs were wrong or better in place."""
    limit = config.limit_secs
    until = None if limit is None else begun + limit - run.earlier
    spent = time.monotonic() - begun + run.earlier
    deciding = PLAY_OFF * (spent if limit is None else limit)
    certificate = build(run.path, say, until, networks=networks, deciding=deciding)
    best = RunFolder.read(run.path).best()
    there = {t.workload.id: t.workload for t in tasks if t.workload.id in best}
    programs = {id_: best[id_].program(workload) for id_, workload in there.items()}
    wrong = certificate["verification"]["replaced"]
    forget(store, tasks, {id_: programs[id_].id for id_ in wrong})
    decided = certificate.get("play_off", {}).get("decided", {})
    prefer(store, [(programs[id_], best[id_].latency) for id_ in decided])
    return dataclasses.replace(run, certificate=certificate)


def _tune_instantly(
    model: Any,
    inputs: Any,
    *,
    config: TuneConfig,
    target: Target,
    ranker: str | Ranker,
    proposer: str,
    out: str | Path | None,
    warm: Sequence[str | Path],
    platform: str,
    announcer: Announcer,
    compile: bool,
    begun: float,
    reuse: bool,
    cache: str,
    fixed: Mapping[str, Any],
) -> RunOutcome:
    """`tune` with nothing measured: no farm, and no device where one is lacking."""
    where = target.platform(platform)
    with ExitStack() as stack:
        records = stack.enter_context(open_records([*map(Path, warm), KNOWN], where.name))
        # A farm comes up only for a model that reads lowered programs.
        farm = functools.cache(lambda: stack.enter_context(lowering_farm(target)))
        judges, remarks = judges_named(
            ranker,
            proposer,
            where,
            records,
            on_cpu=target.is_cpu,
            seed=config.seed,
            features=read_lowered(RowSource(target, farm)),
        )
        from tensorese.workloads import load_variants, source_of_all, tasks_of_all

        source, arrays = _source(model, inputs)
        networks = load_variants(source, **fixed)
        network, arrays = networks[0], _checked(networks, arrays)
        extracted = tasks_of_all(
            networks,
            target.to_json(),
            prepack=config.prepack,
            winograd=config.winograd,
            attention=config.attention,
        )
        for note in (*remarks, *network.notes):
            announcer.on_note(note)
        run = choose_instantly(
            extracted,
            target=target,
            platform=where,
            judges=judges,
            out=Path(out) if out is not None else default_out(network.name),
            config=config,
            model=source_of_all(networks) or network.name,
            network=network.name,
            proposer=proposer,
            callbacks=[announcer],
            started=begun,
            store=user_store(target, where, cache=_timed(target.is_cpu, cache)) if reuse else None,
        )
    _keep(source, arrays, run.path)
    if not compile:
        return run
    certificate = build(run.path, announcer.on_note, networks=networks, timed=False)
    return dataclasses.replace(run, certificate=certificate)


def _timed(on_cpu: bool, cache: str) -> str:
    """Which caches count, where that is a choice."""
    return cache if on_cpu else ""


def _source(model: Any, inputs: Any) -> tuple[Any, Any]:
    """What `load_network` takes, and the inputs that are left to verify with."""
    if isinstance(model, str | Path):
        return model, inputs
    import_tvm()  # before torch, which it would otherwise drag through its own import
    torch: Any = importlib.import_module("torch")
    if not isinstance(model, torch.nn.Module):
        return model, inputs
    from_torch: Any = importlib.import_module("tensorese.workloads.from_torch")
    return from_torch.exported(model, inputs), None


def _checked(networks: Any, inputs: Any) -> dict[str, Any]:
    """Arrays by input name, of a file or a dict."""
    folder: Any = importlib.import_module("tensorese.deploy.folder")
    reading: Any = importlib.import_module("tensorese.workloads.network")
    if inputs is None:
        return {}
    arrays = folder.read_inputs(Path(inputs)) if isinstance(inputs, str | Path) else dict(inputs)
    if len(networks) > 1:
        raise TuneError(
            f"given inputs have one shape, but the library is for {len(networks)}; leave them out"
        )
    checked: dict[str, Any] = reading.checked_inputs(networks[0], arrays)
    return checked


def build(
    run: Path,
    say: Callable[[str], None],
    until: float | None = None,
    *,
    networks: Any = None,
    timed: bool = True,
    deciding: float = math.inf,
) -> dict[str, Any]:
    """The library, its certificate and the report, from what the run folder holds.

    Systems are timed as long as `until` allows, a time of `time.monotonic`; the network decides
    between finalists in `deciding` seconds at most. `networks` are the run's, one a shape, where
    they were read already.
    """
    deploy: Any = importlib.import_module("tensorese.deploy")
    report: Any = importlib.import_module("tensorese.report")
    certificate: dict[str, Any] = deploy.compile_run(
        run, on_step=say, until=until, networks=networks, timed=timed, deciding=deciding
    )
    report.write_report(run)
    return certificate


def load(run: str | Path) -> Any:
    """The tuned library of a run folder: callable on numpy arrays and torch tensors."""
    deploy: Any = importlib.import_module("tensorese.deploy")
    return deploy.load(Path(run))


def _keep(model: Any, inputs: dict[str, Any], run: Path) -> None:
    """What was never a file is kept in its run, for whoever compiles that again."""
    if not isinstance(model, str | Path):
        torch: Any = importlib.import_module("torch")
        torch.export.save(model, run / MODEL)
    if inputs:
        importlib.import_module("numpy").savez(run / INPUTS, **inputs)


def default_out(name: str) -> Path:
    return Path("runs") / name


def _require_device(target: Target) -> None:
    if triple := foreign_triple(target.to_json()):
        raise TargetError(
            f"tuning for {triple} needs devices of it, but none was named; "
            "name them with --rpc-tracker or --ray, or build without measuring: --trials 0"
        )
    if target.is_cpu:
        return
    kind = target.kind
    if not import_tvm().device(kind, 0).exist:
        raise TargetError(
            f"tuning for {kind} needs such a device on this machine, but none was found; "
            "name target 'host', run it where the device is, or build without measuring: --trials 0"
        )
