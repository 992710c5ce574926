"""Nothing is tuned twice: what earlier runs of this user found, as a run begins with it.

A task that is known has its best programs measured again before anything else, so that no stale
time decides, and brings along what was spent on it: the scheduler expects as little of it as of
any task with so many trials, and once every task was visited the trials and the seconds of earlier
runs are counted to the limits of this one. What is not known keeps its share of them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensorese.records.nouns import Measurement, Platform, Program, Status
from tensorese.records.run_folder import REUSED, RunFolder, write_object
from tensorese.records.user_store import (
    PROGRAMS,
    Effort,
    Found,
    Known,
    UserStore,
    default_place,
    read_known,
)
from tensorese.search.loop.finalists import DISQUALIFIED, Winner
from tensorese.search.loop.first_batch import Learnt
from tensorese.search.loop.scheduler import Progress
from tensorese.search.loop.task import ORIGIN, TuningTask
from tensorese.targets import Target
from tensorese.tvm_env import toolchain_of

if TYPE_CHECKING:
    from tensorese.records.task import Task

# What must be the same for measurements of two sittings, or two runs, to be comparable.
_TOOLS = ("tvm", "tvm_ffi", "llvm", "lowering", "cuda")


def tools_of(target: Target) -> dict[str, str]:
    toolchain = toolchain_of(target.kind)
    return {name: toolchain[name] for name in _TOOLS if name in toolchain}


def user_store(target: Target, platform: Platform, *, cache: str = "") -> UserStore | None:
    """The user's records of what was timed as a run here would time it; None where it is off."""
    place = default_place()
    if place is None:
        return None
    conditions = {"target": target.to_json(), "toolchain": tools_of(target), "cache": cache}
    return UserStore(place, platform.name, conditions)


@dataclass(kw_only=True)
class Reuse:
    """What a run knows from others, the same in all of its sittings."""

    run: str = ""
    """The id under which the store counts this run."""
    tasks: Mapping[str, Known] = field(default_factory=dict)
    """Of this run, by workload id."""
    everything: Learnt = field(default_factory=Learnt)
    """The programs of all tasks on this platform: some are like those of this run."""

    @classmethod
    def begin(
        cls,
        store: UserStore | None,
        folder: RunFolder,
        tasks: Sequence[TuningTask],
        platform: Platform,
        say: Callable[[str], None],
    ) -> Reuse:
        """What the store knows now, or what it knew when this run began."""
        if store is None:
            return cls()
        known = store.read()
        if store.problem:
            say(f"earlier runs: passed over {store.problem}")
        reuse = _recalled(folder)
        if reuse is None:
            mine = {task.id: known[task.id] for task in tasks if task.id in known}
            mine = {id_: one for id_, one in mine.items() if one.programs}
            reuse = cls(run=uuid.uuid4().hex, tasks={} if folder.trials else mine)
            entries = {id_: one.to_dict() for id_, one in reuse.tasks.items()}
            write_object(folder.path / REUSED, {"run": reuse.run, "tasks": entries})
        reuse.everything = Learnt()
        reuse.everything.add([m for one in known.values() for m in as_measured(one, platform)])
        reuse._mark(tasks, say)
        return reuse

    def _mark(self, tasks: Sequence[TuningTask], say: Callable[[str], None]) -> None:
        for task in tasks:
            one = self.tasks.get(task.id)
            if one is not None:
                task.known = tuple(found.program for found in one.programs)
                task.progress.earlier, task.progress.earlier_secs = one.trials, one.secs
                task.progress.known = one.latency
        if self.tasks:
            trials = sum(one.trials for one in self.tasks.values())
            say(
                f"{len(self.tasks)} of {len(tasks)} tasks are known from {trials} trials of "
                "earlier runs: their best programs are measured first (--no-reuse: as if not)"
            )

    def add_to(
        self,
        store: UserStore | None,
        folder: RunFolder,
        tasks: Sequence[TuningTask],
        winners: Mapping[str, Winner],
        say: Callable[[str], None],
    ) -> None:
        """Leaves what this run found for those to come."""
        if store is None:
            return
        trials = sum(task.progress.trials for task in tasks)
        secs = _search_secs(folder) / max(1, trials)
        found = []
        for task in tasks:
            n = task.progress.trials
            effort = Effort(
                path=str(folder.path.resolve()), time=time.time(), trials=n, secs=n * secs
            )
            best = _best(task, winners.get(task.id), self.run)
            if n and best:
                found.append(
                    Known(workload=task.task.workload, programs=best, runs={self.run: effort})
                )
        failed = {m.program.id for m in folder.store.measurements() if m.status in DISQUALIFIED}
        store.add(found, failed)
        if store.problem:
            say(f"what this run found is not kept for later ones: {store.problem}")


def counted(tasks: Sequence[Progress], trials: int, secs: float) -> tuple[int, float]:
    """What other runs spent on these tasks, as far as it counts to limits of so many trials and
    seconds: all, unless what is not known would be left with less than its share."""
    total = sum(task.share for task in tasks)
    known = [task for task in tasks if task.earlier]
    share = sum(task.share for task in known) / total if total else 0.0
    return (
        min(sum(task.earlier for task in known), round(share * trials)),
        min(sum(task.earlier_secs for task in known), share * secs),
    )


def check_known(task: TuningTask) -> None:
    """What other runs found counts while it runs here; a program may have no place any more."""
    runs = any(m.origin == ORIGIN and m.status is Status.OK for m in task.measurements)
    if task.progress.trials and not runs:
        task.progress.earlier = 0


def forget(store: UserStore | None, tasks: Sequence[Task], programs: Mapping[str, str]) -> None:
    """Programs by workload id that turned out to be wrong in their network."""
    if store is not None and programs:
        wrong = [Known(workload=one.workload) for one in tasks if one.workload.id in programs]
        store.add(wrong, set(programs.values()))


def prefer(store: UserStore | None, programs: Iterable[tuple[Program, float | None]]) -> None:
    """Programs, with their seconds alone, that turned out to be the fastest in their network."""
    found = [Found(program=p, latency=secs, run="") for p, secs in programs if secs]
    if store is not None and found:
        store.add([Known(workload=one.program.workload, programs=(one,)) for one in found])


def as_measured(known: Known, platform: Platform) -> list[Measurement]:
    """Programs with their latest times, as a store of measurements would give them."""
    return [
        Measurement(
            program=found.program,
            platform=platform,
            status=Status.OK,
            run_secs=(found.latency,),
            origin=ORIGIN,
        )
        for found in known.programs
    ]


def _recalled(folder: RunFolder) -> Reuse | None:
    """As an earlier sitting wrote it down; None for the first."""
    run = folder.optional(REUSED).get("run")
    return None if run is None else Reuse(run=str(run), tasks=read_known(folder))


def _best(task: TuningTask, winner: Winner | None, run: str) -> tuple[Found, ...]:
    """The winner, then the others by their time, each once."""
    fastest: dict[str, Found] = {}
    if winner is not None:
        program = winner.measurement.program
        fastest[program.id] = Found(program=program, latency=winner.latency, run=run)
    valid = [m for m in task.measurements if m.status is Status.OK]
    for m in sorted(valid, key=lambda m: m.latency)[: 2 * PROGRAMS]:
        found = Found(program=m.program, latency=m.latency, run=run)
        fastest.setdefault(m.program.id, found)
    return tuple(fastest.values())[:PROGRAMS]


def _search_secs(folder: RunFolder) -> float:
    """From the first batch that came back to the last, of all sittings."""
    times = [float(batch["secs"]) for batch in folder.batches]
    return max(0.0, times[-1] - times[0]) if times else 0.0
