"""A run's folder: what was asked, what was measured, what is in flight, what is best.

The store is the truth about measurements; `batches.jsonl` says in which order they were learnt
from; `pending.json` says what had been proposed when the process ended. Together they are enough
to go on as if nothing had happened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorese.errors import StoreError
from tensorese.records.journal import write_error
from tensorese.records.nouns import content_id
from tensorese.records.store import Store
from tensorese.search.contracts import Proposal
from tensorese.search.loop.config import TuneError

VERSION = 1
HEAD, BATCHES, PENDING, BEST, STORE = (
    "run.json",
    "batches.jsonl",
    "pending.json",
    "best.json",
    "store",
)

_PROPOSER = "evolution"
"""Of run folders that do not name one."""
_SHAPING = {"prepack": True, "winograd": False}
"""Settings that tasks depend on, and what they were before run folders said so."""


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
class Pending:
    """A batch that was proposed: its number, its task's workload id, and its rows."""

    number: int
    task: str
    proposals: Sequence[tuple[str, Proposal]]
    """With the id of each sketch: places in a list of sketches may differ between versions."""

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {"sketch": sketch, "row": list(p.row), "origin": p.origin, "score": _finite(p.score)}
            for sketch, p in self.proposals
        ]
        return {"number": self.number, "task": self.task, "rows": rows}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Pending:
        proposals = [
            (
                str(row["sketch"]),
                Proposal(
                    sketch=-1,
                    row=tuple(int(v) for v in row["row"]),
                    origin=str(row["origin"]),
                    score=float("nan") if row["score"] is None else float(row["score"]),
                ),
            )
            for row in entry["rows"]
        ]
        return cls(number=int(entry["number"]), task=str(entry["task"]), proposals=proposals)


class RunFolder:
    """Opened with `RunFolder.open`, which starts a run or continues the one that is there."""

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self.path = path
        self.head = head
        self.batches = _read_batches(path / BATCHES)
        self.pending = self._read_pending()
        self.store = Store.open(path / STORE, create=True)
        self.earlier_secs = max(
            float(head.get("seconds", 0.0)), *(float(b["secs"]) for b in self.batches[-1:]), 0.0
        )

    @classmethod
    def open(cls, path: Path, head: RunHead) -> RunFolder:
        wanted = head.to_dict()
        old = _old_head(path)
        if old is None:
            _check_new(path)
            old = {"state": "running", "seconds": 0.0}
        else:
            _check_same(path, old, wanted)
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder = cls(path, {**wanted, "state": old["state"], "seconds": old["seconds"]})
            folder.write_state("running", folder.earlier_secs)
        except OSError as error:
            raise write_error(path, error) from error
        return folder

    @property
    def trials(self) -> int:
        """Of the batches that are complete."""
        return sum(len(batch["proposed"]) for batch in self.batches)

    def write_state(self, state: str, seconds: float) -> None:
        self.head = {**self.head, "state": state, "seconds": round(seconds, 3)}
        self._replace(HEAD, json.dumps(self.head, indent=1))

    def begin(self, pending: Pending) -> None:
        """Before anything of it is measured: a killed run then measures the same again."""
        self.pending.append(pending)
        entries = [entry.to_dict() for entry in self.pending]
        self._replace(PENDING, json.dumps({"batches": entries}))

    def finish(self, number: int, line: Mapping[str, Any]) -> None:
        entry = {"batch": number, **line}
        try:
            with (self.path / BATCHES).open("a") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise write_error(self.path, error) from error
        self.batches.append(entry)
        # The file follows with the next `begin`: a batch in both counts as finished.
        self.pending = [entry for entry in self.pending if entry.number != number]

    def write_best(self, best: Mapping[str, Any]) -> None:
        self._replace(BEST, json.dumps(best, indent=1))

    def close(self) -> None:
        self.store.close()
        if not self.pending:
            (self.path / PENDING).unlink(missing_ok=True)

    def _read_pending(self) -> list[Pending]:
        try:
            entries = json.loads((self.path / PENDING).read_text())["batches"]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, OSError) as error:
            raise TuneError(
                f"{self.path / PENDING} must list the batches in flight, but it cannot be read "
                f"({error}); remove it to go on without them"
            ) from None
        done = {int(batch["batch"]) for batch in self.batches}
        return [p for p in map(Pending.from_dict, entries) if p.number not in done]

    def _replace(self, name: str, text: str) -> None:
        scratch = self.path / f".{name}.{os.getpid()}"
        try:
            scratch.write_text(text + "\n")
            scratch.rename(self.path / name)
        except OSError as error:
            scratch.unlink(missing_ok=True)
            raise write_error(self.path, error) from error


def _finite(value: float) -> float | None:
    return value if value == value else None


def _old_head(path: Path) -> dict[str, Any] | None:
    try:
        text = (path / HEAD).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise write_error(path, error) from error
    try:
        head: dict[str, Any] = json.loads(text)
        version = int(head["version"])
    except (ValueError, KeyError, TypeError):
        raise TuneError(
            f"{path / HEAD} must describe the run, but it cannot be read; name another --out"
        ) from None
    if version != VERSION:
        raise TuneError(
            f"{path} must be a run folder of version {VERSION}, but it is of version {version}; "
            "name another --out"
        )
    return head


def _check_new(path: Path) -> None:
    if path.is_file():
        raise TuneError(f"a run is a folder, but {path} is a file; name another --out")
    if path.is_dir() and any(not p.name.startswith(".run.json") for p in path.iterdir()):
        raise TuneError(
            f"{path} must be empty or a run folder, but it holds other files; name another --out"
        )


def _check_same(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Both values are named: whoever changed something sees what."""

    def refuse(what: str, before: Any, now: Any) -> None:
        raise TuneError(
            f"{path} is a run with {what} {before}, but now it is {now}; name another --out, or "
            "start it as before"
        )

    ids = [sorted(task["workload"] for task in head["tasks"]) for head in (old, new)]
    if ids[0] != ids[1]:
        for key, once in _SHAPING.items():
            settings = [head.get("config", {}).get(key, once) for head in (old, new)]
            if settings[0] != settings[1] and old["model"] == new["model"]:
                refuse(key, *settings)
        names = [f"{head['model']} ({len(head['tasks'])} tasks)" for head in (old, new)]
        if old["model"] == new["model"] and len(ids[0]) == len(ids[1]):
            names = [f"{name}, first {i[0]}" for name, i in zip(names, ids, strict=True)]
        refuse("model", *names)
    for key in ("target", "platform"):
        if old[key] != new[key]:
            refuse(key, old[key], new[key])
    proposers = [head.get("config", {}).get("proposer", _PROPOSER) for head in (old, new)]
    if proposers[0] != proposers[1]:
        refuse("proposer", *proposers)
    before, now = (dict(head["environment"]["toolchain"]) for head in (old, new))
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            refuse(key, before.get(key, "absent"), now.get(key, "absent"))


def _read_batches(path: Path) -> list[dict[str, Any]]:
    """A last line that a killed process left half is cut off: its batch is still pending."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    whole, newline, rest = data.rpartition(b"\n")
    try:
        if rest:
            with path.open("r+b") as file:
                file.truncate(len(whole) + len(newline))
        return [json.loads(line) for line in whole.splitlines() if line]
    except OSError as error:
        raise write_error(path, error) from error
    except ValueError as error:
        raise StoreError(f"{path} must be JSON lines, but one is none: {error}") from None
