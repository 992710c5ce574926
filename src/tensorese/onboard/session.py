"""One run of `tensorese onboard`: probes chosen, measured, learnt from; every step can go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tensorese import interrupts
from tensorese.collect.collector import Tally
from tensorese.collect.session import NamedProgram, Session, collect
from tensorese.collect.tasklist import ListedTask
from tensorese.features.base import extract
from tensorese.models.base import Model, load_model, read_config
from tensorese.models.catalog import ModelChoice
from tensorese.onboard.adapt import Adapted, OnboardError
from tensorese.onboard.probes import choose_probes, spread_tasks
from tensorese.records.nouns import Platform, program_id
from tensorese.records.store import Store
from tensorese.targets import Target

STORE = "store"
SAMPLED = 192
"""Rows of each sketch that probes are chosen from."""
PER_MINUTE = 240
"""Programs a minute that are prepared for; what time does not suffice for is left out."""
MOST_TASKS = 120
PREPARING = 0.25
"""Share of the time that building spaces may take."""

LEARNERS = ("ensemble", "physics", "tlp", "mtl-tlp")
"""Kinds whose networks can be given a head for a new platform."""

Say = Callable[[str], None]
Watch = Callable[[Tally], None]


@dataclass(frozen=True, kw_only=True)
class Onboarding:
    target: Target
    platform: Platform
    minutes: float
    out: Path
    """Of the model and, below it, the store."""
    choice: ModelChoice
    seed: int = 0


def start_at(folder: Path) -> ModelChoice:
    """The model named by --start, by its first head; refused before anything is measured."""
    config = read_config(folder)
    if config["kind"] not in LEARNERS:
        raise OnboardError(
            f"a platform is learnt by networks, but {folder} is of kind {config['kind']}; "
            f"start from one of {', '.join(LEARNERS)}"
        )
    return ModelChoice(folder=folder, head=config["platforms"][0], why="as asked")


def pick_tasks(tasks: Sequence[ListedTask], n: int = MOST_TASKS) -> list[ListedTask]:
    """Training tasks, the classes in turn, each in the order of ids, which is random."""
    train = sorted((t for t in tasks if t.split != "test"), key=lambda t: t.workload.id)
    if not train:
        raise OnboardError(
            f"probe programs are of training tasks, but all {len(tasks)} tasks are marked test"
        )
    return [train[k] for k in spread_tasks([task.operator for task in train], n)]


def probes_of(
    job: Onboarding, tasks: Sequence[ListedTask], per_task: int, say: Say
) -> list[NamedProgram]:
    """Chosen rows of every task, the tasks in turn; stops when preparing has had its share."""
    model, head = load_model(job.choice.folder), job.choice.head
    until = time.monotonic() + 60 * job.minutes * PREPARING
    by_task: list[list[NamedProgram]] = []
    for number, task in enumerate(tasks):
        if time.monotonic() > until and number:
            say(f"preparing took its share of the time: {number} of {len(tasks)} tasks")
            break
        programs = _task_probes(job, task, model, head, per_task)
        if programs:
            by_task.append(programs)
    rounds = max((len(programs) for programs in by_task), default=0)
    return [programs[k] for k in range(rounds) for programs in by_task if k < len(programs)]


def _task_probes(
    job: Onboarding, task: ListedTask, model: Model, head: str, n: int
) -> list[NamedProgram]:
    from tensorese.space.space import task_space
    from tensorese.tvm_env import import_tvm

    kind = job.target.kind
    module = import_tvm(kind).ir.load_json(task.workload.module)
    try:
        space = task_space(module, job.target)
    except Exception:  # TVM has no space for some tasks; the others are enough
        return []
    rng = np.random.default_rng([job.seed, int(task.workload.id, 16) % (1 << 32)])
    seen = "physics-cpu" if kind == "llvm" else "physics-cuda"
    parts, speeds, where = [], [], []
    for sketch in (s for s in space.sketches if s.covered):
        rows = np.unique(sketch.sample(SAMPLED, rng), axis=0)
        inputs = model.read(task.workload, sketch.sketch, rows)
        parts.append(np.asarray(extract(seen, task.workload, sketch.sketch, rows)))
        speeds.append(model.speeds(inputs, head))
        where += [(sketch.sketch.id, tuple(int(v) for v in row)) for row in rows]
    if not where:
        return []
    chosen = choose_probes(np.concatenate(parts), np.concatenate(speeds), n)
    return [
        NamedProgram(
            program=program_id(task.workload.id, *where[k]),
            workload=task.workload.id,
            sketch=where[k][0],
            decisions=where[k][1],
            origin=f"probe:{model.hash}",
        )
        for k in chosen.tolist()
    ]


def measure_probes(
    job: Onboarding, session: Session, tasks: Sequence[ListedTask], say: Say, watch: Watch
) -> bool:
    """Until the minutes are over; whether it came to its end (Ctrl-C does not)."""
    began = time.monotonic()
    per_task = max(4, round(job.minutes * PER_MINUTE / max(1, len(tasks))))
    probes = probes_of(job, tasks, per_task, say)
    left = job.minutes - (time.monotonic() - began) / 60
    config = replace(session.config, minutes=max(left, 0.05), only_named=True)
    say(f"{len(probes)} probes of {len(tasks)} tasks chosen; measuring for {left:.1f} minutes")
    try:
        tally = collect(replace(session, config=config), tasks, probes, watch)
    except KeyboardInterrupt:
        interrupts.forget()
        say("stopped measuring; learning from what was measured (Ctrl-C again ends at once)")
        return False
    say(f"measured {tally.measured} programs")
    return True


def learn(job: Onboarding, *, quick: bool = False) -> Adapted:
    """A head for what the store holds, saved where `--model auto` looks for it."""
    from tensorese.features.programs import read_programs
    from tensorese.models.base import Card, save_model
    from tensorese.onboard.adapt import adapt
    from tensorese.training.fine_tune import NewLabels

    with Store.open(job.out / STORE) as store:
        if job.platform.name not in store.platforms():
            raise OnboardError(
                f"a head needs measurements, but {store.path} has none of {job.platform.name}; "
                "measure for more --minutes"
            )
        programs = read_programs([store], platforms=(job.platform.name,), split="train")
    labels, choice = NewLabels(programs), job.choice
    adapted = adapt(
        labels, job.platform.name, choice.folder, choice.head, seed=job.seed, quick=quick
    )
    gain = adapted.gain
    card = Card(
        command=f"tensorese onboard --minutes {job.minutes:g}",
        data_hash=programs.digest,
        split="none held out; the gain was measured before on one task in four",
        # What the trunk has learnt from counts as seen.
        training_workloads=tuple(dict.fromkeys([*programs.tasks, *_seen_by(choice.folder)])),
        metrics={
            "start": f"{job.choice.folder.name}, head {job.choice.head}",
            "trained": adapted.variant,
            "trees": str(adapted.votes),
            "labels": int(np.isfinite(programs.latency).sum()),
            "held-out top1 before": gain.before[1],
            "held-out top1 after": gain.after[1],
        },
        targets={job.platform.name: job.target.to_json()},
    )
    save_model(job.out, adapted.model, card, half=True)
    return adapted


def _seen_by(folder: Path) -> list[str]:
    return list(read_config(folder)["card"]["training_workloads"])
