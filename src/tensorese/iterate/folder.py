"""The folder of a run of rounds: head, tasks, batches, models, the curve, and the store.

Every file but the curve and the store's journal is written aside and renamed. The store is the
truth about measurements, `batches/` says what was written and by which model, `curve.jsonl` has a
line for every round that is over: together they are enough to go on as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorese.collect.tasklist import ListedTask, read_tasks, write_tasks
from tensorese.iterate.config import IterateError
from tensorese.records.journal import write_error
from tensorese.records.nouns import Program, Sketch, Workload
from tensorese.records.rows import row_sketch, sketch_row
from tensorese.records.run_entries import PendingRow
from tensorese.records.run_folder import read_object, write_object, write_text

HEAD = "rounds.json"
TASKS = "tasks.parquet"
BATCHES = "batches"
CURVE = "curve.jsonl"
MODELS = "models"
BASE = "base"
MODEL = "model"
STORE = "store"
LOG = "learn.log"
REPORT = "report.html"
VERSION = 1
_MUTABLE = ("state", "reason", "seconds", "limits", "tensorese")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a model wrote for one round."""

    number: int
    model: str
    """Its hash."""
    learnt: int
    """Rounds that it had learnt from."""
    rows: Sequence[tuple[str, Sequence[PendingRow]]]
    """By task, in the order they were picked."""
    sketches: Mapping[str, Sketch]
    over: Mapping[str, str] = field(default_factory=dict)
    """Tasks that no program is left of, or that have no space, and why."""
    span: tuple[float, float] = (0.0, 0.0)
    """When learning for it began, and when it was written: seconds of `time.time`."""

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self.rows)

    def to_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "model": self.model,
            "learnt": self.learnt,
            "tasks": [
                {"task": task, "rows": [row.to_dict() for row in rows]} for task, rows in self.rows
            ],
            "sketches": [sketch_row(sketch) for sketch in self.sketches.values()],
            "over": dict(self.over),
            "span": list(self.span),
        }

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Batch:
        sketches = [row_sketch(row) for row in entry["sketches"]]
        begun, ended = entry["span"]
        return cls(
            number=int(entry["number"]),
            model=str(entry["model"]),
            learnt=int(entry["learnt"]),
            rows=[
                (str(one["task"]), [PendingRow.from_dict(row) for row in one["rows"]])
                for one in entry["tasks"]
            ],
            sketches={sketch.id: sketch for sketch in sketches},
            over=dict(entry["over"]),
            span=(float(begun), float(ended)),
        )

    def programs(self, workloads: Mapping[str, Workload]) -> list[tuple[Program, str]]:
        """With their origins, in order."""
        return [
            (
                Program(
                    workload=workloads[task], sketch=self.sketches[row.sketch], decisions=row.row
                ),
                row.origin,
            )
            for task, rows in self.rows
            for row in rows
        ]


class IterationFolder:
    """`open` starts a run or goes on with one; `read` is for the learning process."""

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self.path, self.head = path, head
        self.rounds = _read_lines(path / CURVE)
        """Those that are over."""

    @classmethod
    def read(cls, path: Path) -> IterationFolder:
        return cls(path, read_object(path / HEAD, "it is what `tensorese iterate` writes"))

    @classmethod
    def open(
        cls, path: Path, head: Mapping[str, Any], tasks: Sequence[ListedTask]
    ) -> IterationFolder:
        wanted = {"version": VERSION, **head}
        old = _old_head(path)
        if old is not None:
            _check_same(path, old, wanted)
        try:
            for name in (BATCHES, MODELS):
                (path / name).mkdir(parents=True, exist_ok=True)
            _sweep(path)
            _cut_half_line(path / CURVE)
            if old is None:
                write_tasks(path / f".{TASKS}", tasks)
                (path / f".{TASKS}").replace(path / TASKS)
            kept = {name: (old or {}).get(name) for name in ("reason", "seconds")}
            folder = cls(path, {**wanted, **kept, "seconds": kept["seconds"] or 0.0})
            folder.write_state("running")
        except OSError as error:
            raise write_error(path, error) from error
        return folder

    @property
    def tasks(self) -> list[ListedTask]:
        return read_tasks(self.path / TASKS)

    def write_state(self, state: str, reason: str = "", seconds: float | None = None) -> None:
        secs = self.head["seconds"] if seconds is None else round(seconds, 3)
        self.head = {**self.head, "state": state, "reason": reason, "seconds": secs}
        write_object(self.path / HEAD, self.head)

    # -- batches --------------------------------------------------------------------------

    def batch(self, number: int) -> Batch | None:
        path = self._batch_path(number)
        if not path.exists():
            return None
        try:
            return Batch.from_dict(read_object(path, ""))
        except (KeyError, TypeError, ValueError) as error:
            raise IterateError(
                f"{path} must hold a batch, but it lacks or garbles {error}; remove it to have it "
                "written again"
            ) from None

    def batches(self, count: int) -> list[Batch]:
        """The first so many."""
        found = [self.batch(number) for number in range(count)]
        if None in found:
            raise IterateError(
                f"{self._batch_path(found.index(None))} is missing, though later rounds were "
                "measured; restore it from a copy, or name another --out"
            )
        return [batch for batch in found if batch is not None]

    def write_batch(self, batch: Batch) -> None:
        write_text(self._batch_path(batch.number), json.dumps(batch.to_dict()) + "\n")

    def _batch_path(self, number: int) -> Path:
        return self.path / BATCHES / f"{number:03d}.json"

    # -- models ---------------------------------------------------------------------------

    def model_path(self, learnt: int) -> Path:
        """Of the model that has learnt from so many rounds; of the base for none."""
        return self.path / MODELS / (f"{learnt:03d}" if learnt else BASE)

    def place_model(self, source: Path) -> None:
        """`RUN/model` becomes a copy of this one; a reader finds the old one or the new one."""
        aside, old, place = (self.path / name for name in (".model.new", ".model.old", MODEL))
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(source, aside)
        shutil.rmtree(old, ignore_errors=True)
        if place.exists():
            place.rename(old)
        aside.rename(place)
        shutil.rmtree(old, ignore_errors=True)

    # -- rounds ---------------------------------------------------------------------------

    def finish(self, line: Mapping[str, Any]) -> None:
        try:
            with (self.path / CURVE).open("a") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise write_error(self.path, error) from error
        self.rounds.append(dict(line))


def _old_head(path: Path) -> dict[str, Any] | None:
    if path.is_file():
        raise IterateError(f"a run is a folder, but {path} is a file; name another --out")
    if not (path / HEAD).exists():
        begun = {BATCHES, MODELS, TASKS}  # of an open that was killed before its head was written
        found = [p.name for p in path.iterdir()] if path.is_dir() else []
        if any(name not in begun and not name.startswith(".") for name in found):
            raise IterateError(
                f"{path} must be empty or a run of `tensorese iterate`, but it holds other files; "
                "name another --out"
            )
        return None
    head = read_object(path / HEAD, "name another --out")
    if head.get("version") != VERSION:
        raise IterateError(
            f"{path} must be a run of version {VERSION}, but it is of version "
            f"{head.get('version')}; name another --out"
        )
    return head


def _check_same(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Both values are named: whoever changed something sees what."""

    def refuse(what: str, before: Any, now: Any) -> None:
        raise IterateError(
            f"{path} is a run with {what} {before}, but now it is {now}; name another --out, or "
            "start it as before"
        )

    ids = [sorted(task["workload"] for task in head["tasks"]) for head in (old, new)]
    if ids[0] != ids[1]:
        named = [f"{len(i)} ({i[0] if i else 'none'}, ...)" for i in ids]
        refuse("tasks", *named)
    for key in sorted((old.keys() | new.keys()) - {*_MUTABLE, "tasks"}):
        before, now = json.loads(json.dumps([old.get(key), new.get(key)]))
        if isinstance(before, dict) and isinstance(now, dict):
            for name in sorted(before.keys() | now.keys()):
                if before.get(name) != now.get(name):
                    refuse(name, before.get(name, "absent"), now.get(name, "absent"))
        elif before != now:
            refuse(key, before, now)


def _sweep(path: Path) -> None:
    """What a killed process left half written."""
    for place in (path / BATCHES, path / MODELS):
        for left in place.glob(".*"):
            if left.is_dir():
                shutil.rmtree(left)
            elif not left.name.endswith(".safetensors"):  # of a training that goes on
                left.unlink()
    for name in (".model.new", f".{TASKS}"):
        left = path / name
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    if (path / ".model.old").is_dir() and not (path / MODEL).exists():
        os.rename(path / ".model.old", path / MODEL)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Without a last line that a killed process left half."""
    try:
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines() if line]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise write_error(path, error) from error
    except ValueError as error:
        raise IterateError(f"{path} must be JSON lines, but one is none: {error}") from None


def _cut_half_line(path: Path) -> None:
    if path.exists():
        whole, newline, half = path.read_bytes().rpartition(b"\n")
        if half:
            with path.open("r+b") as file:
                file.truncate(len(whole) + len(newline))
