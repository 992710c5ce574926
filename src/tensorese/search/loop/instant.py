"""`--trials 0`: a program for every task, chosen by models and records, and nothing measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorese.models.catalog import SHIPPED, choose
from tensorese.records.nouns import Platform, Program
from tensorese.records.run_entries import BestProgram
from tensorese.records.run_folder import BEST, RunFolder
from tensorese.records.store import Store
from tensorese.records.user_store import UserStore
from tensorese.search.contracts import Proposal, Ranker
from tensorese.search.loop.config import TuneConfig, TuneError
from tensorese.search.loop.events import Announcer, Callback, Ended, Started
from tensorese.search.loop.reuse import Reuse
from tensorese.search.loop.task import TuningTask, Untunable
from tensorese.search.loop.tune_tasks import RunOutcome, head_of, select
from tensorese.search.proposers.by_name import WRITING
from tensorese.search.proposers.shortlist import Judges, Shortlist
from tensorese.search.rankers.build_cost import BuildCostRanker
from tensorese.search.rankers.by_name import model_named, starting_from
from tensorese.search.rankers.guided import FeatureSource, read_here
from tensorese.space.materialise import materialise
from tensorese.targets import Target

if TYPE_CHECKING:
    from tensorese.records.task import Task
    from tensorese.search.proposers.tlm import TLMProposer

KNOWN = SHIPPED / "best"
"""The fastest programs of the training tasks on every platform that a model ships for."""
REASON = "nothing was measured"
_TRIES = 16  # candidates shown to TVM, best first, before a task keeps its untuned kernel


def judges_named(
    ranker: str | Ranker,
    proposer: str,
    platform: Platform,
    records: Sequence[Store],
    *,
    on_cpu: bool,
    seed: int = 0,
    features: FeatureSource = read_here,
) -> tuple[Judges, list[str]]:
    """Who decides, and lines for people on whom that is."""
    if not isinstance(ranker, str):
        judge = BuildCostRanker(ranker) if on_cpu else ranker
        return Judges(ranker=judge, head=platform.name, records=records), []
    if ranker == "none":
        raise TuneError(
            "--trials 0 needs a model to choose programs by, but got --model none; name auto or a "
            "model's folder, or measure with --trials N"
        )
    named, passed_over = model_named(ranker, platform, features=features)
    if named is None:
        raise TuneError(
            f"--trials 0 needs a model of {platform.name}'s kind, but none is there; measure with "
            "--trials N, or train one with `tensorese train`"
        )
    judge, line = starting_from(named, platform, features=features)
    writer = _writer(proposer, platform, seed)
    judges = Judges(
        ranker=BuildCostRanker(judge) if on_cpu else judge,
        model=named.model,
        head=named.head,
        writer=writer,
        records=records,
        features=features,
    )
    beside = "" if writer is not None else "; no model that writes programs is there for it"
    return judges, [*passed_over, f"nothing is measured: {line} chooses{beside}"]


def _writer(proposer: str, platform: Platform, seed: int) -> TLMProposer | None:
    """Asked for by name it must be there, else it takes part where it is."""
    name, _, folder = proposer.partition(":")
    if name not in WRITING and choose(platform, kinds=("tlm",)) is None:
        return None
    from tensorese.search.proposers.tlm import TLMProposer, writer_for

    return TLMProposer(seed=seed, model=writer_for(platform, folder))


def choose_instantly(
    tasks: Sequence[Task],
    *,
    target: Target,
    platform: Platform,
    judges: Judges,
    out: Path,
    config: TuneConfig,
    model: str = "",
    network: str = "",
    proposer: str = "evolution",
    callbacks: Iterable[Callback] = (),
    started: float | None = None,
    store: UserStore | None = None,
) -> RunOutcome:
    """A run folder with a program for every task that has one, as `tune_tasks` leaves it.

    What an earlier sitting measured stays, and what other runs left in `store` needs no model. A
    later sitting with trials goes on in the same folder.
    """
    begun = time.monotonic() if started is None else started
    settings = {
        **config.to_dict(),
        "ranker": judges.ranker.name,
        "proposer": proposer.partition(":")[0],
        "judged_for": judges.head,
    }
    head = head_of(
        tasks, target=target, platform=platform, model=model, network=network, config=settings
    )
    ours = [TuningTask(task, platform) for task in select(tasks, config.tasks)]
    folder = RunFolder.open(out, head)
    announcer = Announcer(callbacks)
    earlier = folder.earlier_secs
    try:
        Reuse.begin(store, folder, ours, platform, announcer.on_note)
        announcer.on_start(_started(folder, ours))
        entries = folder.optional(BEST) if folder.trials else {}
        shortlist = Shortlist(judges, seed=config.seed)
        for task in ours:
            if task.id not in entries:
                program = _best_of(task, shortlist, announcer.on_note)
                if program is not None:
                    entries[task.id] = program.to_dict(task.task.workload)
        _require_one(ours, entries)
        folder.write_best(entries)
        secs = earlier + time.monotonic() - begun
        folder.write_state("finished", secs)
    finally:
        folder.close()
    chosen = {id_: str(e["origin"]) for id_, e in entries.items() if e["latency"] is None}
    lines = [replace(task.line(), chosen=chosen.get(task.id, "")) for task in ours]
    trials = folder.trials
    announcer.on_end(Ended(tasks=lines, state="finished", reason=REASON, trials=trials, secs=secs))
    return RunOutcome(
        path=out,
        state="finished",
        reason=REASON,
        trials=trials,
        seconds=secs,
        winners={},
        chosen=chosen,
        earlier=earlier,
    )


def _started(folder: RunFolder, tasks: Sequence[TuningTask]) -> Started:
    return Started(
        network=str(folder.head["network"]),
        platform=str(folder.head["platform"]),
        run=str(folder.path),
        tasks=[task.line() for task in tasks],
        known=folder.trials,
        limits={"trials": 0, "seconds": None},
    )


def _best_of(
    task: TuningTask, shortlist: Shortlist, say: Callable[[str], None]
) -> BestProgram | None:
    """The first of the shortlist that TVM accepts; None where the task keeps its plain kernel."""
    why = ""
    try:
        for proposal in _likely(task, shortlist):
            program, why = _scheduled(task, proposal)
            if program is not None:
                return BestProgram(
                    sketch=program.sketch,
                    decisions=program.decisions,
                    tail=program.tail,
                    latency=None,
                    name=task.task.name,
                    weight=task.task.weight,
                    flops=task.task.flops,
                    origin=proposal.origin,
                )
    except Untunable as error:
        why = str(error)
    task.progress.over = f"not tuned: {why or 'nobody proposed a program'}"
    say(f"{task.task.name} keeps its untuned kernel: {why or 'nobody proposed a program'}")
    return None


def _likely(task: TuningTask, shortlist: Shortlist) -> Iterator[Proposal]:
    yield from task.again()
    yield from shortlist.of(task.state)[:_TRIES]


def _scheduled(task: TuningTask, proposal: Proposal) -> tuple[Program | None, str]:
    """With what TVM's postprocessors did, or why it refuses the row."""
    rows = [(proposal.sketch, proposal.row)]
    (made,) = materialise(task.state.space, rows, task.task.workload, threads=1, verify=True)
    return (None, made.error) if made.error else (made.recorded(), "")


def _require_one(tasks: Sequence[TuningTask], entries: Mapping[str, Any]) -> None:
    if not any(task.id in entries for task in tasks):
        first = tasks[0]
        raise TuneError(
            f"at least one task must be tunable, but none of {len(tasks)} is; "
            f"{first.task.name}: {first.progress.over}"
        )
