"""The last play-off: of programs that came close to each other alone, the network decides.

What is fastest alone is not always so among its neighbours. A second library has the runner-up of
every task that has one, a third the next: a kernel's weights are laid out for it alone, so one
library tries a program of each task at once. Kernels are timed inside them, in turns.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tensorese import interrupts
from tensorese.deploy.arena import REST, Arena
from tensorese.deploy.built import Built
from tensorese.deploy.explain import sum_of_tasks
from tensorese.deploy.prepare import Step
from tensorese.deploy.verify import inputs_of
from tensorese.records.run_entries import BestProgram
from tensorese.records.run_folder import BEST, read_object, write_object
from tensorese.targets import Target

ROUNDS = 8
_TURN = 0.25  # seconds
_FEWEST_RUNS, _MOST_RUNS = 3, 100  # of the network, in a turn
_FEWEST_ROUNDS = (
    5  # to decide by, so that there were two processes; and to compare the whole network
)
_GAIN = 0.01  # what a program must be faster by, and the network may seem slower
_WON = 0.75  # of the rounds, where it must be faster
_OTHERS = 2  # programs of a task that may take its winner's place
_LOADING = 1.5  # seconds until a process is ready
_PATIENCE = 3.0  # times what is expected, on a machine that is busy
_NO_TIME = "no time was left for it"
_ALONE, _DECIDED = "alone", "decided"  # libraries, by what chose their programs

InPlace = Mapping[str, Sequence[float]]
"""Seconds of a task's kernels in one run of the network, round by round, by workload id."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A task that takes another program in the network than the fastest alone."""

    alone: BestProgram
    chosen: BestProgram
    place: int
    """Among the task's other finalists, from 1."""
    secs: float
    """In place, in one run of the network, by the fastest round."""
    alone_secs: float


@dataclass(frozen=True, kw_only=True)
class PlayOff:
    """What came of it."""

    tasks: frozenset[str]
    """Those that had a choice, by workload id."""
    seconds: float
    changes: Mapping[str, Change]
    left_out: str = ""
    """Why the network decided nothing; another time it may."""
    latency: Mapping[str, float] | None = None
    """Seconds of the whole network `alone` and as `decided`, where a task would change."""

    def to_dict(self, built: Built) -> dict[str, Any]:
        """For the certificate of what was `built` in the end."""
        rows = {}
        for id_ in self.alone(built):  # unless it was found wrong
            change = self.changes[id_]
            workload = built.applied.workloads[id_]
            rows[id_] = {
                "name": change.chosen.name,
                "program": change.chosen.program(workload).id,
                "alone": change.alone.program(workload).id,
                "place": change.place,
                "secs": change.secs,
                "alone_secs": change.alone_secs,
            }
        return {
            "tasks": len(self.tasks),
            "seconds": self.seconds,
            "decided": rows,
            **({"left_out": self.left_out} if self.left_out else {}),
            **({"latency": dict(self.latency)} if self.latency else {}),
        }

    def alone(self, built: Built) -> dict[str, BestProgram]:
        """What tasks of `built` had before the network preferred another program."""
        best = built.run.best
        return {i: c.alone for i, c in self.changes.items() if best.get(i) is c.chosen}

    def keep(self, built: Built) -> None:
        """The run's best programs are those in the library, and nothing is left to decide."""
        if self.left_out:
            return
        path = built.run.path / BEST
        best = read_object(path, "the same `tensorese tune` again writes it anew")
        for id_ in self.tasks & built.run.best.keys():
            program = replace(built.run.best[id_], others=())
            best[id_] = program.to_dict(built.applied.workloads[id_])
        write_object(path, best)


def decide(winners: InPlace, others: Sequence[InPlace]) -> dict[str, int]:
    """The place among `others` of the program that a task takes, where one wins by more than
    noise: in most rounds, and by its fastest one, since a busy machine only ever slows a kernel."""
    chosen: dict[str, tuple[float, int]] = {}
    for place, library in enumerate(others):
        for task, rounds in library.items():
            pairs = list(zip(rounds, winners.get(task, ()), strict=False))
            won = sum(other < winner for other, winner in pairs)
            if len(pairs) < _FEWEST_ROUNDS or won < _WON * len(pairs):
                continue
            ratio = min(rounds) / min(winners[task])
            if ratio <= 1 - _GAIN:
                chosen[task] = min(chosen.get(task, (math.inf, 0)), (ratio, place))
    return {task: place for task, (_, place) in chosen.items()}


def play_off(
    built: Built, library: Path, scratch: Path, on_step: Step, *, building: float, allowed: float
) -> tuple[Built, Path, PlayOff]:
    """The network as it decides, `allowed` so many seconds; it took `building` to compile once.

    Nothing that goes wrong here keeps `library`, which is whole, from being shipped.
    """
    started = time.monotonic()
    choices = choices_of(built)
    ended = PlayOff(tasks=frozenset(choices), seconds=0.0, changes={})
    places = min(_OTHERS, max(len(others) for others in choices.values()))
    while places and expected_secs(built, building, places) > allowed:
        places -= 1
    if not places:
        return built, library, replace(ended, left_out=_NO_TIME)
    on_step(f"{len(choices)} tasks are decided in the network")
    try:
        with interrupts.remembered():
            most = min(allowed, _PATIENCE * expected_secs(built, building, places))
            until = started + most - _ending(built, building)
            made, path, ended = _played(built, library, scratch, choices, places, until)
    except KeyboardInterrupt:
        made, path, ended = built, library, replace(ended, left_out="it was interrupted")
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        made, path, ended = built, library, replace(ended, left_out=lines[-1][:200])
    return made, path, replace(ended, seconds=time.monotonic() - started)


def choices_of(built: Built) -> dict[str, tuple[BestProgram, ...]]:
    """The other finalists of the tasks that are in the library, by workload id."""
    best = built.run.best
    return {id_: best[id_].others for id_ in built.applied.tuned.values() if best[id_].others}


def expected_secs(built: Built, building: float, places: int) -> float:
    """Of a play-off between the winners and so many others of each task."""
    processes = (1 + places) * (2 * _LOADING + ROUNDS * _turn(built))
    return places * building + processes + _ending(built, building)


def _ending(built: Built, building: float) -> float:
    """Seconds to build what was decided, and to compare the whole network before and after."""
    return building + _LOADING + 2 * _FEWEST_ROUNDS * _turn(built)


def _turn(built: Built) -> float:
    return REST + max(_TURN, _FEWEST_RUNS * sum_of_tasks(built.run))


def _played(
    built: Built,
    library: Path,
    scratch: Path,
    choices: Mapping[str, Sequence[BestProgram]],
    places: int,
    until: float,
) -> tuple[Built, Path, PlayOff]:
    best = built.run.best
    tried = [{i: o[place] for i, o in choices.items() if place < len(o)} for place in range(places)]
    ended = PlayOff(tasks=frozenset(choices), seconds=0.0, changes={})
    with Arena(scratch, inputs_of(built)[:1], Target.from_json(built.run.target).threads) as arena:
        arena.add(_ALONE, built.contender(library))
        libraries = {_ALONE: (built, library)}
        for place, programs in enumerate(tried):
            name, other = f"other-{place}", built.taking({**best, **programs})
            libraries[name] = other, _add(arena, name, other, scratch)
        winners, *others = in_place(arena, libraries, until)
        if min(map(len, winners.values()), default=0) < _FEWEST_ROUNDS:
            return built, library, replace(ended, left_out=_NO_TIME)
        others = [{i: taken[i] for i in ones} for taken, ones in zip(others, tried, strict=True)]
        changes = {
            id_: Change(
                alone=best[id_],
                chosen=tried[place][id_],
                place=place + 1,
                secs=min(others[place][id_]),
                alone_secs=min(winners[id_]),
            )
            for id_, place in decide(winners, others).items()
        }
        if not changes:
            return built, library, ended
        for name in [*libraries][1:]:
            arena.drop(name, "")
        decided = built.taking({**best, **{id_: change.chosen for id_, change in changes.items()}})
        path = _add(arena, _DECIDED, decided, scratch)
        latency = end_to_end(arena)
    if latency[_DECIDED] > (1 + _GAIN) * latency[_ALONE]:  # kernels are told apart more finely
        return built, library, replace(ended, latency=latency)
    return decided, path, replace(ended, latency=latency, changes=changes)


def _add(arena: Arena, name: str, built: Built, scratch: Path) -> Path:
    path = built.build(scratch / f"{name}.so")
    interrupts.check()  # Ctrl-C may get lost in a callback of TVM's
    arena.add(name, built.contender(path))
    return path


def in_place(
    arena: Arena, libraries: Mapping[str, tuple[Built, Path]], until: float = math.inf
) -> list[dict[str, list[float]]]:
    """Each library's tasks as its kernels run, in turns.

    Half-way all processes start anew: in one of them kernels may be slower in every round, by
    where its memory happens to lie. No round begins after `until`, a time of `time.monotonic`.
    """
    run = next(iter(libraries.values()))[0].run
    runs = max(_FEWEST_RUNS, min(_MOST_RUNS, int(_TURN / max(sum_of_tasks(run), 1e-6))))
    names = list(libraries)
    taken: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in names}
    for turn in range(ROUNDS):
        if time.monotonic() > until:
            break
        if turn == ROUNDS // 2 > 0:
            for name, (built, path) in libraries.items():
                arena.swap(name, built.contender(path))
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            time.sleep(REST)
            profile = arena.inside(name, runs)["kernels"]
            for task, secs in _by_task(profile, libraries[name][0]).items():
                taken[name][task].append(secs)
    return list(taken.values())


def end_to_end(arena: Arena) -> dict[str, float]:
    """Seconds of the whole network in each library, by its fastest run."""
    timed = arena.time(_FEWEST_ROUNDS, _TURN)
    return {name: float(row["best"]) for name, row in timed.items()}


def _by_task(profile: Sequence[Mapping[str, Any]], built: Built) -> dict[str, float]:
    secs: dict[str, float] = defaultdict(float)
    for row in profile:
        if task := built.applied.tuned.get(str(row["kernel"])):
            secs[task] += float(row["secs"])
    return secs
