"""Rounds with the real learning process over stored measurements of small spaces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iterate_support import micro_model
from rounds_support import Slowly
from tensorese.collect.session import Session
from tensorese.collect.tasklist import ListedTask
from tensorese.iterate.config import IterateConfig
from tensorese.iterate.folder import STORE
from tensorese.iterate.learner import LearningProcess
from tensorese.iterate.rounds import Rounds
from tensorese.iterate.session import Iteration, open_folder
from tensorese.records.nouns import Measurement
from tensorese.records.store import Store
from tensorese.records.task import Task
from tuning_support import PLATFORM, TARGET, every_measurement, matmul_task

SETTINGS = {"steps": "4", "tasks": "2", "rows": "4"}
CONFIG = IterateConfig(rounds=4, per_task=6, task_share=1.0, least_gain=0.0, in_flight=6)


def small_tasks() -> list[Task]:
    return [matmul_task(4, weight=3), matmul_task(2)]


def listed(tasks: Sequence[Task]) -> list[ListedTask]:
    return [
        ListedTask(
            workload=task.workload,
            kind="llvm",
            operator=task.operator,
            name=task.name,
            flops=task.flops,
            networks=(("net", task.weight),),
        )
        for task in tasks
    ]


def job(out: Path, **changed: Any) -> Iteration:
    model = out.with_name("micro")
    if not model.exists():
        micro_model(model, PLATFORM.name, target=TARGET.to_json())
    session = Session(target=TARGET, platform=PLATFORM, out=out / STORE)
    what: dict[str, Any] = {"model": str(model), "settings": SETTINGS, "config": CONFIG}
    return Iteration(out=out, session=session, device="cpu", **{**what, **changed})


def run_learning(
    out: Path, known: Sequence[Measurement], secs: float = 0.0, **changed: Any
) -> Rounds:
    tasks, wanted = listed(small_tasks()), job(out, **changed)
    folder = open_folder(wanted, tasks)
    learner = LearningProcess(out, wanted.device, [0])
    with Store.open(out / STORE, create=True) as store, Slowly(known, PLATFORM) as measurer:
        measurer.secs, measurer.journal = secs, store
        rounds = Rounds(
            folder, tasks, store=store, measurer=measurer, config=wanted.config,
            platform=PLATFORM.name, learner=learner,
        )  # fmt: skip
        try:
            rounds.run()
        finally:
            learner.close()
    return rounds


def stored() -> list[Measurement]:
    return every_measurement(small_tasks())
