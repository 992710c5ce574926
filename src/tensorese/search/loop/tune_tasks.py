"""Tunes a list of tasks into a run folder: what the command line, Python and benchmarks share."""

from __future__ import annotations

import fnmatch
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorese import interrupts
from tensorese.errors import did_you_mean
from tensorese.measure.base import Measurer
from tensorese.records.nouns import Platform
from tensorese.records.run_entries import EitherWay, RunHead, settings_of
from tensorese.records.run_folder import RunFolder
from tensorese.records.store import Store
from tensorese.records.user_store import UserStore
from tensorese.search.contracts import Proposer, Ranker
from tensorese.search.loop.budget import Budget
from tensorese.search.loop.config import TuneConfig, TuneError
from tensorese.search.loop.events import Announcer, Callback
from tensorese.search.loop.finalists import Winner
from tensorese.search.loop.reuse import Reuse, tools_of
from tensorese.search.loop.task import TuningTask
from tensorese.search.loop.tuner import Tuner
from tensorese.search.proposers.by_name import DEFAULT, proposer_named
from tensorese.search.rankers.build_cost import BuildCostRanker
from tensorese.targets import Target

if TYPE_CHECKING:
    from tensorese.records.task import Task


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """How a run stands after a sitting. Its folder says the rest."""

    path: Path
    state: str
    """`finished` or `interrupted`."""
    reason: str
    trials: int
    seconds: float
    winners: dict[str, Winner]
    """By workload id."""
    chosen: dict[str, str] = field(default_factory=dict)
    """Who proposed each program that was chosen without measuring, by workload id."""
    earlier: float = 0.0
    """Seconds of earlier sittings."""
    certificate: dict[str, Any] = field(default_factory=dict)
    """Of the library, once it was built: verification and end-to-end latencies."""
    ways: Sequence[EitherWay] = ()
    """What was, or is still to be, decided about convolutions."""


def tune_tasks(
    tasks: Sequence[Task],
    *,
    target: Target,
    platform: Platform,
    measurer: Measurer | Callable[[Path], Measurer],
    ranker: Ranker,
    out: Path,
    config: TuneConfig,
    model: str = "",
    network: str = "",
    callbacks: Iterable[Callback] = (),
    started: float | None = None,
    proposer: str | Proposer = DEFAULT,
    records: Sequence[Store] = (),
    compiles: int = 0,
    preparing: float = 0.0,
    peak_gflops: float | None = None,
    store: UserStore | None = None,
    device: str = "",
    ways: Sequence[EitherWay] = (),
) -> RunOutcome:
    """Tunes or goes on tuning. The measurer journals into the run's store, or is made for it.

    `started` is when the process began, on `time.monotonic`'s clock, `compiles` for how many shapes
    a library is built afterwards (time is left for it, by how long `preparing` the network took),
    `records` are of earlier runs, `peak_gflops` is the machine's. A `proposer` by name is guided by
    `ranker`; one that is an object has a ranker of its own. What other runs left in `store` is not
    tuned again, and what this one finds is added to it. `device` says where programs are timed, if
    not here. `ways` are to be decided between, by their tasks.
    """
    if target.is_cpu:
        ranker = BuildCostRanker(ranker)
    if isinstance(proposer, str):
        proposer = proposer_named(proposer, ranker, config.seed, platform)
    head = head_of(
        tasks,
        target=target,
        platform=platform,
        model=model,
        network=network,
        config={
            **config.to_dict(),
            "ranker": ranker.name,
            "proposer": proposer.name,
            **({"device": device} if device else {}),
            **settings_of(ways),
        },
        peak_gflops=peak_gflops,
    )
    chosen = select(tasks, config.tasks)
    folder = RunFolder.open(out, head)
    announcer = Announcer(callbacks)
    try:
        if not isinstance(measurer, Measurer):
            measurer = measurer(folder.store.path)
        measurer.journal = folder.store
        ours = [TuningTask(task, platform) for task in chosen]
        reuse = Reuse.begin(store, folder, ours, platform, announcer.on_note)
        tuner = Tuner(
            ours,
            folder=folder,
            measurer=measurer,
            config=config,
            proposer=proposer,
            budget=Budget(
                config=config,
                started=time.monotonic() if started is None else started,
                earlier=folder.earlier_secs,
                compiles=compiles,
                preparing=preparing,
                builders=measurer.builds_at_once,
                side_by_side=target.kind == "cuda",
                plays_off=compiles == 1 and target.is_cpu and not device,
            ),
            records=records,
            announcer=announcer,
            reuse=reuse,
            ways=ways,
        )
        with _interruptible(tuner, announcer):
            winners = tuner.run()
        if tuner.measured or folder.earlier_state != "finished":
            reuse.add_to(store, folder, ours, winners, announcer.on_note)
    finally:
        folder.close()
    return RunOutcome(
        path=out,
        state=str(folder.head["state"]),
        reason=tuner.stopped,
        trials=folder.trials,
        seconds=float(folder.head["seconds"]),
        winners=winners,
        earlier=tuner.budget.earlier,
        ways=tuner.ways,
    )


def head_of(
    tasks: Sequence[Task],
    *,
    target: Target,
    platform: Platform,
    model: str,
    network: str,
    config: dict[str, Any],
    peak_gflops: float | None = None,
) -> RunHead:
    return RunHead(
        model=model,
        network=network,
        target=target.to_json(),
        platform=platform.name,
        tasks=[_described(task) for task in tasks],
        toolchain=tools_of(target),
        config=config,
        environment=environment(),
        peak_gflops=peak_gflops,
    )


def select(tasks: Sequence[Task], patterns: Sequence[str]) -> list[Task]:
    """Tasks whose name or operator matches a glob, or whose id begins with it."""
    if not tasks:
        raise TuneError(
            "a model must have at least one task to tune, but it has none; one that is nothing but "
            "attention has some with --no-attention"
        )
    chosen: list[Task] = []
    for pattern in patterns or ("*",):
        matching = [task for task in tasks if _matches(task, pattern)]
        if not matching:
            names = sorted({task.name for task in tasks} | {task.operator for task in tasks})
            raise TuneError(
                f"--tasks must match a task's name, operator or id, but {pattern!r} matches none"
                f"{did_you_mean(pattern, names)}; see `tensorese tasks`"
            )
        chosen.extend(task for task in matching if task not in chosen)
    return [task for task in tasks if task in chosen]


def _matches(task: Task, pattern: str) -> bool:
    names = (task.name, task.operator)
    by_name = any(fnmatch.fnmatchcase(name, pattern) for name in names)
    return by_name or (len(pattern) >= 6 and task.workload.id.startswith(pattern))


def _described(task: Task) -> dict[str, Any]:
    return {
        "workload": task.workload.id,
        "name": task.name,
        "operator": task.operator,
        "weight": task.weight,
        "flops": task.flops,
        "shapes": ["x".join(map(str, arg.shape)) for arg in task.workload.args],
    }


def environment() -> dict[str, Any]:
    from tensorese import __version__

    return {
        "tensorese": __version__,
        "host": os.uname().nodename,
        "cores": len(os.sched_getaffinity(0)),
    }


@contextmanager
def _interruptible(tuner: Tuner, announcer: Announcer) -> Iterator[None]:
    """Ctrl-C once ends the run well, twice at once; a thread other than the main one has none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        if tuner.stopped == "interrupted":
            raise KeyboardInterrupt
        tuner.stop()
        announcer.on_note("stopping after the current measurement; Ctrl-C again stops at once")

    with interrupts.handled(interrupt):
        yield
