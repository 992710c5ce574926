"""A run's folder: its settings, what was measured, what is in flight, what is best, what was
built. Whoever reads or writes one does it here.

The store is the truth about measurements; `batches.jsonl` says in which order they were learnt
from; `pending.json` says what had been proposed when the process ended. Together they are enough
to go on as if nothing had happened.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tensorese.errors import StoreError, TensoreseError
from tensorese.records.claims import Claim, InUse
from tensorese.records.journal import write_error
from tensorese.records.run_entries import (
    VERSION,
    BestProgram,
    EitherWay,
    Pending,
    RunHead,
    settings_of,
    ways_in,
)
from tensorese.records.store import Store

HEAD = "run.json"
LOCK = ".lock"
BATCHES = "batches.jsonl"
PENDING = "pending.json"
BEST = "best.json"
STORE = "store"
LIBRARY = "library.so"
CERTIFICATE = "certificate.json"
BENCH = "bench.json"
DATABASE = "database"
REPORT = "report.html"
REUSED = "reused.json"
"""What was known from other runs when this one began."""
MODEL = "model.pt2"
"""A program that was tuned from memory lies beside its run; others are read where they are."""
INPUTS = "example-inputs.npz"
"""What the user wants verified with, by name."""

_PROPOSER = "evolution"
"""Of run folders that do not name one."""
_SHAPING = {"prepack": True, "winograd": False, "attention": False}
"""Settings that tasks depend on, and their values in run folders that do not record them."""


_WRONG = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading a damaged file's JSON comes to."""


class RunFolderError(TensoreseError):
    """A folder that is no run, is another one, or is damaged."""


class RunFolder:
    """`RunFolder.open` starts a run or goes on with one, `RunFolder.read` changes nothing."""

    def __init__(self, path: Path, head: dict[str, Any], claim: Claim | None = None) -> None:
        self.path = path
        self.head = head
        self._claim = claim
        self.earlier_state = ""
        """How the sitting before ended: `running` when it was killed; empty for the first."""
        self.repairs: list[str] = []
        """What was found damaged and how the run goes on without it."""
        self.pending: list[Pending] = []
        """Batches that were begun and not finished; known to who opened the run."""

    @classmethod
    def read(cls, path: Path) -> RunFolder:
        """Of a run in any state; its parts may be missing."""
        return cls(path, read_object(path / HEAD, "a run folder is what `tensorese tune` writes"))

    @classmethod
    def open(cls, path: Path, head: RunHead) -> RunFolder:
        claim = claim_run(path)
        try:
            return cls._open(path, head.to_dict(), claim)
        except BaseException as error:
            claim.close()
            if isinstance(error, OSError):
                raise write_error(path, error) from error
            raise

    @classmethod
    def _open(cls, path: Path, wanted: dict[str, Any], claim: Claim) -> RunFolder:
        old = _old_head(path)
        if old is None:
            old = {"state": "running", "seconds": 0.0}
        else:
            _check_same(path, old, wanted)
        _cut_half_line(path / BATCHES)
        folder = cls(path, {**wanted, "state": old["state"], "seconds": old["seconds"]}, claim)
        folder._drop_damaged_batches()
        folder.earlier_state = str(old["state"]) if folder.batches else ""
        folder.pending = folder._read_pending()
        folder.write_state("running", folder.earlier_secs)
        return folder

    @cached_property
    def batches(self) -> list[dict[str, Any]]:
        """Those that are complete, in the order they were learnt from."""
        return _read_batches(self.path / BATCHES)[0]

    @cached_property
    def store(self) -> Store:
        """Every measurement of the run; made when it is missing."""
        return Store.open(self.path / STORE, create=True)

    @property
    def earlier_secs(self) -> float:
        """Seconds of earlier sittings."""
        last = [float(batch["secs"]) for batch in self.batches[-1:]]
        return max(float(self.head.get("seconds", 0.0)), *last, 0.0)

    def outcomes(self, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Columns of the measurements so far; none when there is no store to read."""
        if not (self.path / STORE).is_dir():
            return []
        try:
            with Store.open(self.path / STORE) as store:
                rows: list[dict[str, Any]] = store.table(columns).to_pylist()
                return rows
        except StoreError:
            return []

    @property
    def has_best(self) -> bool:
        """A run that ended before anything succeeded has none: all tasks stay untuned."""
        return (self.path / BEST).exists()

    @property
    def best_is_whole(self) -> bool:
        """Whether it can be read; the measurements are enough to write it anew."""
        try:
            return self.has_best and self.best() is not None
        except RunFolderError:
            return False

    def best(self) -> dict[str, BestProgram]:
        """By workload id."""
        remedy = "the same `tensorese tune` again writes it anew"
        rows = read_object(self.path / BEST, remedy) if self.has_best else {}
        try:
            return {task: BestProgram.from_dict(row) for task, row in rows.items()}
        except _WRONG as error:
            raise RunFolderError(
                f"{self.path / BEST} must name the best programs, but it lacks or garbles {error}; "
                f"{remedy}"
            ) from None

    @property
    def model(self) -> str:
        """Where the network is: beside the run, or where it was when it was tuned."""
        copy = self.path / MODEL
        return str(copy) if copy.exists() else str(self.head["model"])

    def optional(self, name: str) -> dict[str, Any]:
        """The object in one of its files; empty when that is missing or damaged."""
        try:
            return read_object(self.path / name, "")
        except RunFolderError:
            return {}

    @property
    def trials(self) -> int:
        """Of the batches that are complete."""
        return sum(len(batch["proposed"]) for batch in self.batches)

    def write_state(self, state: str, seconds: float) -> None:
        self.head = {**self.head, "state": state, "seconds": round(seconds, 3)}
        write_text(self.path / HEAD, json.dumps(self.head, indent=1) + "\n")

    def choose(self, ways: Sequence[EitherWay], weights: Mapping[str, int], seconds: float) -> None:
        """What the network computes how from now on, and so which tasks it has."""
        config = {**self.head["config"], **settings_of(ways)}
        tasks = [
            {**task, "weight": weights.get(task["workload"], task["weight"])}
            for task in self.head["tasks"]
        ]
        self.head = {**self.head, "config": config, "tasks": tasks}
        self.write_state("running", seconds)

    def begin(self, pending: Pending) -> None:
        """Before anything of it is measured: a killed run then measures the same again."""
        self.pending.append(pending)
        entries = [entry.to_dict() for entry in self.pending]
        write_text(self.path / PENDING, json.dumps({"batches": entries}) + "\n")

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
        write_object(self.path / BEST, best)

    def close(self) -> None:
        self.store.close()
        if not self.pending:
            (self.path / PENDING).unlink(missing_ok=True)
        if self._claim is not None:
            self._claim.close()

    def _read_pending(self) -> list[Pending]:
        try:
            entries = json.loads((self.path / PENDING).read_text())["batches"]
        except FileNotFoundError:
            return []
        except (*_WRONG, OSError):
            return self._without_pending()
        done = {int(batch["batch"]) for batch in self.batches}
        try:
            return [p for p in map(Pending.from_dict, entries) if p.number not in done]
        except _WRONG:
            return self._without_pending()

    def _without_pending(self) -> list[Pending]:
        self.repairs.append(f"{self.path / PENDING} is damaged: what it listed is proposed anew")
        return []

    def _drop_damaged_batches(self) -> None:
        """Their measurements are in the store, from where they are learnt again."""
        path = self.path / BATCHES
        whole, damaged = _read_batches(path)
        if damaged:
            aside = path.with_name(f"{BATCHES}.damaged")
            path.replace(aside)
            write_text(path, "".join(json.dumps(batch) + "\n" for batch in whole))
            self.repairs.append(f"{damaged} damaged lines of {path} were set aside in {aside.name}")


def recorded_ways(path: Path) -> tuple[EitherWay, ...] | None:
    """What a run that was begun is deciding or has decided; None where there is none."""
    if not (path / HEAD).exists():
        return None
    try:
        return ways_in(RunFolder(path, {}).optional(HEAD).get("config", {}))
    except _WRONG:
        return ()  # whoever opens the run says what is damaged


def claim_run(path: Path) -> Claim:
    """For whoever writes into a run; the folder is made when it is missing."""
    if not (path / HEAD).exists():
        _check_new(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        return Claim(path / LOCK)
    except InUse as holder:
        raise RunFolderError(
            f"a run folder has one user at a time, but {path} is in use by {holder}; wait for it, "
            "or name another folder"
        ) from None
    except OSError as error:
        raise write_error(path, error) from error


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """A JSON object of a run folder."""
    try:
        value = json.loads(path.read_text())
    except OSError as error:
        raise RunFolderError(f"{path} must be readable ({error.strerror}); {remedy}") from None
    except (ValueError, RecursionError):
        raise RunFolderError(f"{path} must be JSON, but it is damaged; {remedy}") from None
    if not isinstance(value, dict):
        raise RunFolderError(f"{path} must hold a JSON object; {remedy}")
    return value


def write_object(path: Path, value: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Whole or not at all: a reader never sees half a file."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_text(text)
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise write_error(path, error) from error


def _old_head(path: Path) -> dict[str, Any] | None:
    try:
        text = (path / HEAD).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise write_error(path, error) from error
    try:
        head: dict[str, Any] = json.loads(text)
        version = int(head["version"])
        _check_head(head)
    except _WRONG:
        raise RunFolderError(
            f"{path / HEAD} must describe the run, but it cannot be read; name another --out"
        ) from None
    if version != VERSION:
        raise RunFolderError(
            f"{path} must be a run folder of version {VERSION}, but it is of version {version}; "
            "name another --out"
        )
    return head


def _check_head(head: Mapping[str, Any]) -> None:
    """Raises one of `_WRONG` where what is compared, or gone on from, is missing."""
    _secs(head["seconds"]), str(head["state"]), dict(head["environment"]["toolchain"])
    [str(task["workload"]) for task in head["tasks"]]
    [str(head[key]) for key in ("model", "target", "platform")]
    head.get("config", {}).get("proposer")


def _secs(value: Any) -> float:
    if not 0 <= float(value) < math.inf:
        raise ValueError(f"seconds of {value}")
    return float(value)


def _check_new(path: Path) -> None:
    if path.is_file():
        raise RunFolderError(f"a run is a folder, but {path} is a file; name another --out")
    if path.is_dir() and any(not p.name.startswith((".run.json", LOCK)) for p in path.iterdir()):
        raise RunFolderError(
            f"{path} must be empty or a run folder, but it holds other files; name another --out"
        )


def _check_same(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Both values are named: whoever changed something sees what."""

    def refuse(what: str, before: Any, now: Any) -> None:
        raise RunFolderError(
            f"{path} is a run with {what} {before}, but now it is {now}; name another --out, or "
            "start it as before"
        )

    ids = [sorted(task["workload"] for task in head["tasks"]) for head in (old, new)]
    if ids[0] != ids[1]:
        for key, once in _SHAPING.items():
            settings = [bool(head.get("config", {}).get(key, once)) for head in (old, new)]
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


def _read_batches(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Without a last line that a killed process left half; and how many lines are damaged."""
    try:
        whole, _, _ = path.read_bytes().rpartition(b"\n")
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise write_error(path, error) from error
    lines = [line for line in whole.split(b"\n") if line]
    batches = [batch for line in lines if (batch := _batch(line)) is not None]
    return batches, len(lines) - len(batches)


def _batch(line: bytes) -> dict[str, Any] | None:
    try:
        entry: dict[str, Any] = json.loads(line)
        int(entry["batch"]), _secs(entry["secs"]), str(entry["task"])
        return entry if all(p["program"] for p in entry["proposed"]) else None
    except _WRONG:
        return None


def _cut_half_line(path: Path) -> None:
    """What is written next must begin a line; the batch that was cut off is still pending."""
    if path.exists():
        whole, newline, half = path.read_bytes().rpartition(b"\n")
        if half:
            with path.open("r+b") as file:
                file.truncate(len(whole) + len(newline))
