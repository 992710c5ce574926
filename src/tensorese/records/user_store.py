"""What a user's earlier runs found: the best few programs of every task, a small file each.

A file answers for one platform, target and toolchain, which its folder is named after. Files are
replaced whole, under one lock for all writers; readers need none. Whatever is wrong with the store
is a problem to tell of and never an error: a run goes on as if nothing were known.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tensorese.errors import StoreError
from tensorese.records.journal import FileLock, write_error
from tensorese.records.nouns import Program, Workload, canonical_json, content_id
from tensorese.records.rows import row_sketch, row_workload, sketch_row, workload_row
from tensorese.records.run_folder import REUSED, RunFolder, write_text

VARIABLE = "TENSORESE_STORE"
OFF = "off"
PROGRAMS = 5  # kept of a task
TASKS = 4096  # kept in all, those longest unchanged go first
_RUNS = 16  # named of a task; what earlier ones spent is summed up
_VERSION = 1
_LOCK = ".lock"
_EARLIER = "earlier"
_WRONG = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading a damaged file's JSON comes to."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A program, its latest latency in seconds, and the run that found it."""

    program: Program
    latency: float
    run: str
    """Its id; `Known.runs` says more."""

    def to_dict(self) -> dict[str, Any]:
        program = self.program
        return {
            "sketch": program.sketch.id,
            "decisions": list(program.decisions),
            "latency": self.latency,
            "run": self.run,
        }


@dataclass(frozen=True, kw_only=True)
class Effort:
    """What one run spent on a task."""

    path: str
    """Of its folder, as it was then."""
    time: float
    """When it ended."""
    trials: int
    secs: float
    """Wall-clock of the search, its share by trials."""

    def to_dict(self) -> dict[str, Any]:
        return {"path": self.path, "time": self.time, "trials": self.trials, "secs": self.secs}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Effort:
        effort = cls(
            path=str(row["path"]),
            time=float(row["time"]),
            trials=int(row["trials"]),
            secs=float(row["secs"]),
        )
        if effort.trials < 0 or not 0 <= effort.secs < math.inf:
            raise ValueError(f"an effort of {effort.trials} trials, {effort.secs} s")
        return effort


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of one task: its programs, the winner of the last run first."""

    workload: Workload
    programs: tuple[Found, ...] = ()
    runs: Mapping[str, Effort] = field(default_factory=dict)
    """By id, in the order they ended."""

    @property
    def trials(self) -> int:
        return sum(effort.trials for effort in self.runs.values())

    @property
    def secs(self) -> float:
        return sum(effort.secs for effort in self.runs.values())

    @property
    def latency(self) -> float:
        return self.programs[0].latency if self.programs else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Without the module: whoever has the task has that too."""
        sketches = {found.program.sketch.id: found.program.sketch for found in self.programs}
        return {
            "version": _VERSION,
            "workload": workload_row(replace(self.workload, module="")),
            "runs": {run: effort.to_dict() for run, effort in self.runs.items()},
            "sketches": [sketch_row(sketch) for sketch in sketches.values()],
            "programs": [found.to_dict() for found in self.programs],
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Known:
        if row["version"] != _VERSION:
            raise ValueError(f"version {row['version']}")
        workload = row_workload(dict(row["workload"]))
        sketches = {sketch.id: sketch for sketch in map(row_sketch, row["sketches"])}
        runs = {str(run): Effort.from_dict(effort) for run, effort in row["runs"].items()}
        programs = []
        for entry in row["programs"]:
            decisions = tuple(int(value) for value in entry["decisions"])
            sketch, latency = sketches[entry["sketch"]], float(entry["latency"])
            if len(decisions) != sketch.n_decisions or not 0 < latency < math.inf:
                raise ValueError("a program that cannot be")
            program = Program(workload=workload, sketch=sketch, decisions=decisions)
            programs.append(Found(program=program, latency=latency, run=str(entry["run"])))
        return cls(workload=workload, programs=tuple(programs), runs=runs)

    def merged(self, newer: Known, failed: Collection[str] = ()) -> Known:
        """With what a run adds; its times replace older ones, `failed` programs are left out."""
        own = {found.program.id: found for found in newer.programs}
        finders = {found.program.id: found.run for found in self.programs}
        ours = [replace(f, run=finders.get(id_, f.run)) for id_, f in own.items()]
        older = [found for found in self.programs if found.program.id not in own]
        rest = sorted(ours[1:] + older, key=lambda found: found.latency)
        standing = [f for f in [*ours[:1], *rest] if f.program.id not in failed][:PROGRAMS]
        runs = dict(sorted({**self.runs, **newer.runs}.items(), key=lambda item: item[1].time))
        return Known(workload=newer.workload, programs=tuple(standing), runs=_few(runs))


def _few(runs: dict[str, Effort]) -> dict[str, Effort]:
    if len(runs) <= _RUNS:
        return runs
    old, recent = list(runs.items())[: -_RUNS + 1], list(runs.items())[-_RUNS + 1 :]
    together = Effort(
        path="",
        time=max(effort.time for _, effort in old),
        trials=sum(effort.trials for _, effort in old),
        secs=sum(effort.secs for _, effort in old),
    )
    return {_EARLIER: together, **dict(recent)}


def default_place() -> Path | None:
    """Where the user's store is: what the environment says, else with the user's data."""
    named = os.environ.get(VARIABLE, "")
    if named == OFF:
        return None
    if named:
        return Path(named).expanduser()
    data = os.environ.get("XDG_DATA_HOME", "")
    return (Path(data) if data else Path.home() / ".local" / "share") / "tensorese" / "store"


def read_known(folder: RunFolder) -> dict[str, Known]:
    """What was known of a run's tasks when it began; nothing where that file is damaged."""
    try:
        tasks = folder.optional(REUSED).get("tasks", {})
        return {str(id_): Known.from_dict(row) for id_, row in tasks.items()}
    except _WRONG:
        return {}


class UserStore:
    """Of what was measured on one platform, for one target, by one toolchain."""

    def __init__(self, place: Path, platform: str, conditions: Mapping[str, Any]) -> None:
        """`conditions` are what times must agree in to be comparable."""
        self.place = place
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in platform)
        stated = canonical_json({"platform": platform, **conditions})
        self.folder = place / f"{name}-{content_id('store', stated)}"
        self.problem = ""
        """What was wrong last, for one line."""

    def read(self) -> dict[str, Known]:
        """Everything that is known, by workload id."""
        self.problem = ""
        known, damaged = {}, []
        try:
            paths = sorted(self.folder.glob("*.json"))
        except OSError as error:
            self.problem = f"{self.folder} cannot be read ({error.strerror})"
            return {}
        for path in paths:
            one = _read(path)
            if one is None:
                damaged.append(path.name)
            else:
                known[one.workload.id] = one
        if damaged:
            self.problem = f"{len(damaged)} damaged files of {self.folder} ({damaged[0]})"
        return known

    def add(self, found: Sequence[Known], failed: Collection[str] = ()) -> None:
        """Adds what a run found. A damaged file is replaced."""
        self.problem = ""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.place / _LOCK, create=True, wait=True):
                for newer in found:
                    path = self.folder / f"{newer.workload.id}.json"
                    older = _read(path) or Known(workload=newer.workload)
                    write_text(path, json.dumps(older.merged(newer, failed).to_dict()) + "\n")
                _drop_oldest(self.place)
        except OSError as error:
            self.problem = str(write_error(self.place, error))
        except StoreError as error:
            self.problem = str(error)


def _read(path: Path) -> Known | None:
    try:
        known = Known.from_dict(json.loads(path.read_bytes()))
    except (*_WRONG, OSError):
        return None
    return known if known.workload.id == path.stem else None


def _drop_oldest(place: Path) -> None:
    files = list(place.glob("*/*.json"))
    if len(files) > TASKS:
        files.sort(key=lambda path: path.stat().st_mtime)
        for path in files[: len(files) - TASKS]:
            path.unlink(missing_ok=True)
