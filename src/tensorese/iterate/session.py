"""One run of `tensorese iterate`: base, folder, measurer and learning process put together."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tensorese.collect.farm import CollectFarm, keep_off_lanes
from tensorese.collect.remote import Place
from tensorese.collect.session import Session, keep_on, stored_bests
from tensorese.collect.tasklist import ListedTask
from tensorese.iterate.config import IterateConfig, IterateError
from tensorese.iterate.events import RoundsView
from tensorese.iterate.folder import MODEL, REPORT, IterationFolder
from tensorese.iterate.learner import LearningProcess
from tensorese.iterate.page import curve, page
from tensorese.iterate.rounds import INTERRUPTED, Rounds, ended, weight_of
from tensorese.models.base import load_model, read_config
from tensorese.models.catalog import choose
from tensorese.records.nouns import Platform, Status
from tensorese.records.run_folder import write_text
from tensorese.records.store import Store
from tensorese.targets import usable_cores

WRITES = "tlm"
FROM_DATA = "trained from --data"


class RemotePlace(Protocol):
    """Another place than this machine: one of `collect.remote`."""

    def measuring(
        self, session: Session, store: Store
    ) -> contextlib.AbstractContextManager[Place]: ...


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """What `tensorese iterate` was asked for."""

    out: Path
    session: Session
    """Its store is below `out`; its own limits are not used."""
    model: str = "auto"
    data: Sequence[Path] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of learning, as `--set` gives them."""
    config: IterateConfig = field(default_factory=IterateConfig)
    device: str = "auto"


def base_of(spec: str, platform: Platform, data: Sequence[Path]) -> Path | None:
    """The folder of the model that the rounds begin with; None where `--data` trains one."""
    if spec == "auto":
        choice = choose(platform, kinds=(WRITES,))
        if choice is not None:
            return choice.folder
        if not data:
            raise IterateError(
                f"rounds begin with a model that writes, but none is of {platform.name}'s kind "
                "and there is no --data to train one from; name one with --model DIR "
                "(`tensorese train tlm`), or records with --data STORE"
            )
        return None
    config = read_config(Path(spec))
    if config["kind"] != WRITES:
        raise IterateError(
            f"rounds begin with a model that writes, of kind {WRITES}, but {spec} is of kind "
            f"{config['kind']}; train one with `tensorese train tlm`"
        )
    return Path(spec)


def open_folder(job: Iteration, tasks: Sequence[ListedTask]) -> IterationFolder:
    """Checks everything that can be checked before the folder is begun."""
    from tensorese.iterate.fine_tune import (
        FineTuning,
        device_named,
    )  # torch: not for who only asks for help

    session = job.session
    base = base_of(job.model, session.platform, job.data)
    FineTuning.named(job.settings, job.config.seed, has_model=base is not None)
    device_named(job.device)
    if base is not None:
        load_model(base)
    data = [_counted(path, session.platform.name) for path in job.data]
    if base is None and not any(valid for _, _, valid in data):
        raise IterateError(
            f"a first model learns from valid records of {session.platform.name}, but "
            f"{', '.join(map(str, job.data))} has none; name other --data, or a model with --model"
        )
    head = {
        "target": session.target.to_json(),
        "platform": session.platform.name,
        "model": _hash_of(base) if base else FROM_DATA,
        "data": [[path, rows] for path, rows, _ in data],
        "config": dict(job.config.fixed()),
        "learning": dict(job.settings),
        "tasks": [_described(task) for task in sorted(tasks, key=lambda t: t.workload.id)],
    }
    folder = IterationFolder.open(job.out, head, tasks)
    place = folder.model_path(0)
    if base is not None and not place.exists():
        aside = place.with_name(f".{place.name}.copy")
        shutil.copytree(base, aside, copy_function=shutil.copyfile)
        aside.rename(place)
    return folder


def iterate(
    job: Iteration,
    tasks: Sequence[ListedTask],
    *,
    place: RemotePlace | None = None,
    view: RoundsView | None = None,
    started: float | None = None,
) -> dict[str, Any]:
    """Runs or goes on; what the command prints, and `--json` writes."""
    view, session = view or RoundsView(), job.session
    folder = open_folder(job, tasks)
    why = ended(folder, tasks, job.config, float(folder.head["seconds"]))
    if why and folder.model_path(len(folder.rounds)).exists():
        folder.write_state("finished", why)
        result = summary(folder, job.config)
        view.on_end(result)
        return result
    learners: list[LearningProcess] = []
    cores = usable_cores()

    def on_phase(timing: bool) -> None:
        for learner in learners:
            learner.pause(timing)

    with Store.open(session.out, create=True) as store:
        try:
            where = place.measuring(session, store) if place else _here(session, store, on_phase)
            with where as there:
                learner = LearningProcess(folder.path, job.device, there.cores)
                learners.append(learner)
                rounds = Rounds(
                    folder, tasks, store=store, measurer=there.measurer, learner=learner,
                    config=job.config, platform=session.platform.name, window=there.window,
                    view=view, started=started,
                )  # fmt: skip
                view.on_start(summary(folder, job.config))
                with interruptible(rounds, view):
                    rounds.run()
        finally:
            for learner in learners:
                learner.close()
            keep_on(cores)
            store.compact()
            write_text(folder.path / REPORT, page(folder.head, folder.rounds))
    result = summary(folder, job.config)
    view.on_end(result)
    return result


def summary(folder: IterationFolder, config: IterateConfig) -> dict[str, Any]:
    rounds = folder.rounds
    weights = {task["workload"]: float(task["weight"]) for task in folder.head["tasks"]}
    sums = [secs for _, secs in curve(rounds, weights)]
    return {
        "run": str(folder.path),
        "platform": folder.head["platform"],
        "model": folder.head["model"],
        "state": folder.head["state"],
        "reason": folder.head["reason"],
        "rounds": len(rounds),
        "of": config.rounds,
        "trials": rounds[-1]["trials"] if rounds else 0,
        "seconds": folder.head["seconds"],
        "tasks": len(folder.head["tasks"]),
        "measured_tasks": len(rounds[-1]["best"]) if rounds else 0,
        "sums": sums,
        "final_model": str(folder.path / MODEL) if (folder.path / MODEL).exists() else None,
    }


@contextlib.contextmanager
def _here(
    session: Session, store: Store, on_phase: Callable[[bool], None]
) -> Iterator[Place]:  # fmt: skip
    """On this machine, in the session's layout: what learns stands still while programs are timed
    on its cores."""
    with CollectFarm(
        session.target,
        session.farm,
        platform=session.platform,
        journal=store,
        layout=session.layout,
        on_phase=on_phase,
    ) as farm:
        farm.know_best(stored_bests(store, session.platform.name))
        keep_off_lanes(farm.plan)
        ahead = len(farm.plan.builders) * (16 if farm.plan.exclusive else 4)
        yield Place(measurer=farm, cores=farm.plan.builders, window=lambda: ahead)
        on_phase(False)


@contextlib.contextmanager
def interruptible(rounds: Rounds, view: RoundsView) -> Iterator[None]:
    """Ctrl-C once ends the run well, twice at once; a thread other than the main one has none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        if rounds.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        rounds.stop()
        view.on_note("stopping after the current measurement; Ctrl-C again stops at once")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _counted(path: Path, platform: str) -> tuple[str, int, int]:
    """Of a store: its place, measurements of the platform, and how many of them are valid."""
    with Store.open(path) as store:
        if platform not in store.platforms():
            return str(path.resolve()), 0, 0
        statuses = store.table(["status"], platform=platform, split="train")["status"].to_pylist()
    return str(path.resolve()), len(statuses), statuses.count(Status.OK.value)


def _hash_of(folder: Path) -> str:
    return str(read_config(folder)["weights_sha256"])[:8]


def _described(task: ListedTask) -> dict[str, Any]:
    return {
        "workload": task.workload.id,
        "name": task.name or task.operator,
        "operator": task.operator,
        "weight": weight_of(task),
        "flops": task.flops,
    }
