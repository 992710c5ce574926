"""One run of `tensorese collect`: tasks, store, farm and planners put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tensorese.collect.collector import CollectConfig, Collector, Tally, TaskProgress
from tensorese.collect.farm import COLLECTING, ISOLATED, CollectFarm, Layout, keep_off_lanes
from tensorese.collect.planner_pool import PlannerPool
from tensorese.collect.tasklist import ListedTask
from tensorese.errors import MeasureError
from tensorese.measure.config import CorePlan, FarmConfig
from tensorese.measure.cores import alone_on
from tensorese.measure.faults import FaultsInARow
from tensorese.records.nouns import Platform, Status
from tensorese.records.store import Store
from tensorese.targets import Target, usable_cores

OnResult: TypeAlias = Callable[[Tally], None]
GROUP = 16
"""Programs of one task that are re-measured together by default."""


@dataclass(frozen=True, kw_only=True)
class NamedProgram:
    """A program somebody else proposed, by ids; it is materialised here."""

    program: str
    workload: str
    sketch: str
    decisions: tuple[int, ...]
    origin: str


@dataclass(frozen=True, kw_only=True)
class Session:
    """Where and how a run measures."""

    target: Target
    platform: Platform
    out: Path
    layout: Layout = ISOLATED
    config: CollectConfig = field(default_factory=CollectConfig)
    farm: FarmConfig = COLLECTING
    planners: int = 0
    """0: by the cores, see `planners_for`."""
    share: bool = False
    """Measure beside others who time programs on these cores; else they are waited for."""
    say: Callable[[str], None] = lambda text: None


class MeasuringPlace(Protocol):
    """Where programs are measured: here, or one of `collect.remote`."""

    def __call__(
        self, session: Session, progress: list[TaskProgress], store: Store, on_result: OnResult
    ) -> Tally: ...


def collect(
    session: Session,
    tasks: Sequence[ListedTask],
    programs: Sequence[NamedProgram] = (),
    on_result: OnResult = lambda tally: None,
    place: MeasuringPlace | None = None,
) -> Tally:
    """Measures until time is up; the store has every result, also when this is interrupted."""
    with Store.open(session.out, create=True) as store:
        progress = progress_of(tasks, store, session.platform.name)
        queue_programs(progress, programs)
        cores = usable_cores()
        try:
            tally = (place or run_here)(session, progress, store, on_result)
        finally:
            keep_on(cores)
            store.compact()
    if tally.measured and not tally.by_status[Status.OK]:
        counts = ", ".join(f"{n} {status}" for status, n in tally.by_status.items())
        raise MeasureError(
            f"at least one of {tally.measured} programs must run, but got {counts}; "
            "run tensorese doctor"
        )
    return tally


def run_here(
    session: Session, progress: list[TaskProgress], store: Store, on_result: OnResult
) -> Tally:
    """On this machine, in the session's layout."""
    pools: list[PlannerPool] = []

    def on_phase(timing: bool) -> None:
        for pool in pools:
            pool.pause(timing)

    with (
        alone_on(usable_cores(), share=session.share, say=session.say),
        CollectFarm(
            session.target,
            session.farm,
            platform=session.platform,
            journal=store,
            layout=session.layout,
            on_phase=on_phase,
        ) as farm,
    ):
        farm.know_best(stored_bests(store, session.platform.name))
        keep_off_lanes(farm.plan)
        pool = PlannerPool(
            [state.task for state in progress],
            session.target,
            seed=session.config.seed,
            processes=session.planners or planners_for(farm.plan),
            cores=farm.plan.builders,
        )
        pools.append(pool)
        # In phases a phase's worth is built ahead; a GPU's runner stops for references now and
        # then; otherwise enough that nobody waits.
        much = farm.plan.exclusive or farm.kind != "llvm"
        ahead = len(farm.plan.builders) * (16 if much else 4)
        config = replace(session.config, in_flight=max(session.config.in_flight, ahead))
        try:
            return Collector(progress, pool, farm, config, on_result, faults=FaultsInARow()).run()
        finally:
            pools.clear()
            pool.close()


def planners_for(plan: CorePlan) -> int:
    """One for every four builders; they stand still half the time where cores are shared."""
    return max(1, len(plan.builders) // (2 if plan.exclusive else 4))


def keep_on(cores: Sequence[int]) -> None:
    """Gives this process its cores back."""
    keep_off_lanes(CorePlan(lanes=(), builders=tuple(cores), exclusive=False, threads=1))


def progress_of(tasks: Sequence[ListedTask], store: Store, platform: str) -> list[TaskProgress]:
    """The tasks with what the store already has of them on this platform.

    In the order of their ids, which is random: a run that ends early has seen every class.
    """
    ordered = sorted(tasks, key=lambda task: task.workload.id)
    states = {task.workload.id: TaskProgress(task=task) for task in ordered}
    if platform not in store.platforms():
        return list(states.values())
    columns = ["program_id", "workload_id", "sketch_id", "status", "latency", "decisions"]
    seen: set[str] = set()
    for row in store.table(columns, platform=platform).to_pylist():
        state = states.get(row["workload_id"])
        if state is None or row["status"] == Status.INFRA_ERROR or row["program_id"] in seen:
            continue
        seen.add(row["program_id"])
        state.known.append(row["program_id"])
        if row["status"] == Status.OK:
            state.valid += 1
            state.best.append((row["latency"], row["sketch_id"], tuple(row["decisions"])))
    for state in states.values():
        state.best = sorted(state.best)[:4]
    return list(states.values())


def programs_of(source: Store) -> list[NamedProgram]:
    """The programs of a store, each once: those it has measurements of, then those it only lists.

    Of the measured those that ran on most platforms come first, a program with several labels is
    worth more; of the others those with the highest score.
    """
    columns = ["program_id", "workload_id", "sketch_id", "decisions", "origin", "status"]
    rows = source.table(columns).to_pylist()
    by_id = {row["program_id"]: named_program(row) for row in rows}
    ran = Counter(row["program_id"] for row in rows if row["status"] == Status.OK)
    measured = sorted(by_id.values(), key=lambda one: -ran[one.program])
    listed = source.program_table().sort_by([("score", "descending")]).to_pylist()
    return measured + [
        named_program({**row, "program_id": row["id"]}) for row in listed if row["id"] not in by_id
    ]


def named_program(row: Mapping[str, Any]) -> NamedProgram:
    return NamedProgram(
        program=row["program_id"],
        workload=row["workload_id"],
        sketch=row["sketch_id"],
        decisions=tuple(row["decisions"]),
        origin=row["origin"],
    )


def queue_programs(progress: Iterable[TaskProgress], programs: Iterable[NamedProgram]) -> int:
    """Queues programs for their tasks; those that are known or of no task are left out."""
    states = {state.task.workload.id: state for state in progress}
    known = {program for state in states.values() for program in state.known}
    added = 0
    for one in programs:
        state = states.get(one.workload)
        if state is not None and one.program not in known:
            state.named.append((one.sketch, one.decisions, one.origin))
            added += 1
    return added


def again(
    session: Session,
    source: Store,
    n: int,
    group: int = GROUP,
    tasks: Container[str] | None = None,
) -> tuple[Session, list[NamedProgram]]:
    """A session that times `n` valid programs of a store once more, alone; they are `group` each
    of tasks taken evenly from the store's (those in `tasks`, if given), so that a ranking by the
    second time can be judged: the more programs, the more of them look best by luck.
    """
    columns = ["program_id", "workload_id", "sketch_id", "decisions", "origin"]
    table = source.table(columns, platform=session.platform.name, status=Status.OK)
    by_task: dict[str, dict[str, NamedProgram]] = {}
    for row in table.to_pylist():
        if tasks is None or row["workload_id"] in tasks:
            by_task.setdefault(row["workload_id"], {})[row["program_id"]] = named_program(row)
    groups = [list(programs.values()) for _, programs in sorted(by_task.items())]
    wanted = max(1, n // group)
    full = [one for one in groups if len(one) >= group] or groups
    chosen = [full[i * len(full) // wanted] for i in range(min(wanted, len(full)))]
    rows = [row for one in chosen for row in one[:: max(1, len(one) // group)][:group]]
    config = replace(session.config, only_named=True)
    return replace(session, config=config, layout=ISOLATED), rows


def stored_bests(store: Store, platform: str) -> Mapping[str, float]:
    if platform not in store.platforms():
        return {}
    return {key: m.latency for key, m in store.best(platform).items()}


def summary(tally: Tally, session: Session) -> dict[str, Any]:
    """What the command prints, and `--json` writes."""
    invalid = tally.by_status[Status.INVALID]
    return {
        "platform": session.platform.name,
        "store": str(session.out),
        "layout": session.layout.name,
        "measured": tally.measured,
        "seconds": round(tally.seconds, 1),
        "programs_per_sec": round(tally.measured / max(tally.seconds, 1e-9), 2),
        "by_status": dict(tally.by_status.most_common()),
        "by_origin": dict(tally.by_origin.most_common()),
        "by_class": dict(tally.by_class.most_common()),
        "hosts": {name: host.to_dict() for name, host in sorted(tally.hosts.items())},
        "rejected_share": round(invalid / max(1, tally.measured), 4),
        "tasks_without_space": dict(Counter(tally.errors.values()).most_common(5)),
    }
