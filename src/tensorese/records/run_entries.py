"""The entries of a run folder's files: its head, a batch in flight, a task's best program."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tensorese.records.nouns import Program, Sketch, Workload, content_id

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class RunHead:
    """What must not change between sittings, and what describes the run."""

    model: str
    network: str
    target: str
    platform: str
    tasks: Sequence[Mapping[str, Any]]
    toolchain: Mapping[str, str]
    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    peak_gflops: float | None = None
    """Of the machine, where it is known."""

    @property
    def fingerprint(self) -> str:
        ids = sorted(str(task["workload"]) for task in self.tasks)
        tools = json.dumps(dict(self.toolchain), sort_keys=True)
        return content_id("run", *ids, self.target, tools)

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "model": self.model,
            "network": self.network,
            "target": self.target,
            "platform": self.platform,
            "config": dict(self.config),
            "environment": {"toolchain": dict(self.toolchain), **self.environment},
            "fingerprint": self.fingerprint,
            "peak_gflops": self.peak_gflops,
            "tasks": [dict(task) for task in self.tasks],
        }


@dataclass(frozen=True, kw_only=True)
class PendingRow:
    """A proposed row, with the id of its sketch: its place in a list may differ by version."""

    sketch: str
    row: tuple[int, ...]
    origin: str
    score: float

    def to_dict(self) -> dict[str, Any]:
        score = self.score if self.score == self.score else None
        return {"sketch": self.sketch, "row": list(self.row), "origin": self.origin, "score": score}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> PendingRow:
        return cls(
            sketch=str(entry["sketch"]),
            row=tuple(int(value) for value in entry["row"]),
            origin=str(entry["origin"]),
            score=float("nan") if entry["score"] is None else float(entry["score"]),
        )


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A batch that was proposed: its number, its task's workload id, and its rows."""

    number: int
    task: str
    rows: Sequence[PendingRow]

    def to_dict(self) -> dict[str, Any]:
        rows = [row.to_dict() for row in self.rows]
        return {"number": self.number, "task": self.task, "rows": rows}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Pending:
        rows = [PendingRow.from_dict(row) for row in entry["rows"]]
        return cls(number=int(entry["number"]), task=str(entry["task"]), rows=rows)


_SETTINGS = ("winograd", "attention")


@dataclass(frozen=True, kw_only=True)
class Way:
    """A convolution by F(m x m, 3 x 3), or an attention as one kernel (`m` is 1); as the network
    says where `m` is 0."""

    m: int
    calls: Mapping[str, int]
    """Of tasks that the other way does not have, by workload id."""
    fixed: float = 0.0
    """Seconds of its kernels that have nothing to tune, in one run of the network."""
    secs: float | None = None
    """All kernels together, once they were measured."""


@dataclass(frozen=True, kw_only=True)
class EitherWay:
    """A convolution or an attention, and two ways to compute it: what the network does, and what it
    might."""

    key: tuple[int, ...]
    """See `workloads.choice`."""
    ways: tuple[Way, Way]
    decided: bool = False
    """By measuring; until then an estimate says which is first."""

    @property
    def setting(self) -> str:
        return _SETTINGS[len(self.key) != 5]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> EitherWay:
        first, second = (Way(**way) for way in entry["ways"])
        key = tuple(int(extent) for extent in entry["key"])
        return cls(key=key, ways=(first, second), decided=bool(entry["decided"]))


def ways_in(config: Mapping[str, Any]) -> tuple[EitherWay, ...]:
    """Of a run's settings; none where nothing was to be decided."""
    entries = [config.get(setting) for setting in _SETTINGS]
    lists = [some for some in entries if isinstance(some, list)]
    return tuple(EitherWay.from_dict(entry) for some in lists for entry in some)


def settings_of(ways: Sequence[EitherWay]) -> dict[str, Any]:
    """As a run's settings have them: by the switch that allows the choice."""
    by_setting = [[one for one in ways if one.setting == setting] for setting in _SETTINGS]
    return {some[0].setting: [one.to_dict() for one in some] for some in by_setting if some}


@dataclass(frozen=True, kw_only=True)
class BestProgram:
    """The program chosen for one task, and what it was measured at."""

    sketch: Sketch
    decisions: tuple[int, ...]
    tail: str
    latency: float | None
    """Seconds; None where a model chose it and nothing was measured."""
    name: str
    """Of its task, as are `weight` and `flops`."""
    weight: int
    flops: float
    remeasured: tuple[float, ...] = ()
    """Seconds of its turns as a finalist."""
    verified: bool = False
    origin: str = ""
    """Who proposed a program that was not measured."""
    others: tuple[BestProgram, ...] = ()
    """Finalists that it beat alone, until the network has decided between them and it."""

    def program(self, workload: Workload) -> Program:
        return Program(
            workload=workload, sketch=self.sketch, decisions=self.decisions, tail=self.tail
        )

    def to_dict(self, workload: Workload) -> dict[str, Any]:
        sketch = self.sketch
        slots = [list(slot) for slot in sketch.slots]
        return {
            "program": self.program(workload).id,
            "sketch": {"dialect": sketch.dialect, "body": sketch.body, "slots": slots},
            "decisions": list(self.decisions),
            "tail": self.tail,
            "latency": self.latency,
            "origin": self.origin,
            "remeasured": list(self.remeasured),
            "verified": self.verified,
            "name": self.name,
            "weight": self.weight,
            "flops": self.flops,
            **({"others": [one.to_dict(workload) for one in self.others]} if self.others else {}),
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> BestProgram:
        sketch = row["sketch"]
        slots = tuple((int(at), int(length)) for at, length in sketch["slots"])
        return cls(
            sketch=Sketch(dialect=str(sketch["dialect"]), body=str(sketch["body"]), slots=slots),
            decisions=tuple(int(value) for value in row["decisions"]),
            tail=str(row.get("tail", "")),
            latency=None if row["latency"] is None else float(row["latency"]),
            name=str(row["name"]),
            weight=int(row["weight"]),
            flops=float(row["flops"]),
            remeasured=tuple(float(secs) for secs in row.get("remeasured", ())),
            verified=bool(row.get("verified", False)),
            origin=str(row.get("origin", "")),
            others=tuple(map(cls.from_dict, row.get("others", ()))),
        )
