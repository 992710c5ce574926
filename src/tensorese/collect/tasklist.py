"""Task lists: the workloads to collect programs of, as one small Parquet file.

A machine that measures has no torch and imports no networks; it reads such a list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tensorese.errors import TensoreseError
from tensorese.records.journal import write_error
from tensorese.records.nouns import Workload
from tensorese.records.rows import row_workload, workload_row
from tensorese.records.store import HEAD, Store

_TEXT = pa.string()
_WORKLOAD = ("id", "operator", "args", "attributes", "source", "key", "module")
_SCHEMA = pa.schema(
    [(name, _TEXT) for name in _WORKLOAD]
    + [(name, _TEXT) for name in ("kind", "class", "name", "networks", "split")]
    + [("flops", pa.float64())]
)
_FACTS = {"kind": "tasks", "schema": 1}


class TaskListError(TensoreseError):
    """A task list that cannot be read or made."""


@dataclass(frozen=True, kw_only=True)
class ListedTask:
    """A workload worth collecting programs of, and where it came from."""

    workload: Workload
    kind: str
    """Of the targets it was prepared for: `llvm` or `cuda`; weights are laid out accordingly."""
    operator: str
    """Its class: `conv2d`, `dense`, ..."""
    name: str = ""
    flops: float = 0.0
    networks: tuple[tuple[str, int], ...] = ()
    """`(zoo name with shape, weight there)` of every network that runs it."""
    split: str = ""
    """`test` for tasks that training and tuning never see."""


def write_tasks(path: Path, tasks: Iterable[ListedTask]) -> None:
    table = pa.Table.from_pylist([_row(task) for task in tasks], schema=_SCHEMA)
    table = table.replace_schema_metadata({"tensorese": json.dumps(_FACTS)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # One page a column: modules resemble each other, and zstd sees that within a page only.
        pq.write_table(
            table,
            path,
            compression="zstd",
            compression_level=19,
            use_dictionary=False,
            data_page_size=1 << 28,
        )
    except OSError as error:
        raise write_error(path.parent, error) from error


def read_tasks(path: Path) -> list[ListedTask]:
    try:
        table = pq.read_table(path)
        facts = json.loads((table.schema.metadata or {})[b"tensorese"])
        if facts["kind"] != _FACTS["kind"]:
            raise ValueError(f"it holds {facts['kind']}")
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise TaskListError(
            f"a task list is a Parquet file written by `tensorese collect --list`, but {path} is "
            f"none ({str(error).strip().splitlines()[0][:100]})"
        ) from None
    return [_task(row) for row in table.to_pylist()]


def stored_tasks(path: Path, kind: str) -> list[ListedTask]:
    """The replayable workloads of a record store as tasks for targets of `kind`."""
    with Store.open(path) as store:
        table = store.table(["workload_id", "split", "target"])
        marks: dict[str, str] = {}
        for row in table.to_pylist():
            if _kind_of(row["target"]) == kind:
                marks[row["workload_id"]] = marks.get(row["workload_id"]) or row["split"]
        known = store.workloads()
        workloads = [known[key] for key in sorted(marks) if key in known and known[key].module]
    if not workloads:
        raise TaskListError(
            f"{path} must hold workloads that TVM 0.27 can load for {kind} targets, but has none"
        )
    return [
        ListedTask(workload=w, kind=kind, operator=w.operator, split=marks[w.id]) for w in workloads
    ]


def load_tasks(path: Path, kind: str) -> list[ListedTask]:
    """The tasks for targets of `kind`, from a list or from a record store."""
    if not path.exists():
        raise TaskListError(
            f"--tasks must be zoo:train, zoo:test, zoo:NAME, a task list or a store, but {path} "
            "does not exist"
        )
    if path.is_dir() or (path / HEAD).exists():
        return stored_tasks(path, kind)
    listed = read_tasks(path)
    tasks = [task for task in listed if task.kind == kind]
    if not tasks:
        kinds = ", ".join(sorted({task.kind for task in listed})) or "nothing"
        raise TaskListError(f"{path} has no tasks for {kind} targets; it lists {kinds}")
    return tasks


def merge_tasks(tasks: Sequence[ListedTask]) -> list[ListedTask]:
    """One entry per workload and kind; the networks that share it are joined."""
    merged: dict[tuple[str, str], ListedTask] = {}
    for task in tasks:
        key = (task.kind, task.workload.id)
        known = merged.get(key)
        networks = task.networks if known is None else (*known.networks, *task.networks)
        merged[key] = ListedTask(
            workload=task.workload,
            kind=task.kind,
            operator=task.operator,
            name=task.name,
            flops=task.flops,
            networks=tuple(sorted(set(networks))),
            split="test" if "test" in (task.split, known.split if known else "") else task.split,
        )
    return list(merged.values())


def _kind_of(target: str) -> str:
    try:
        return str(json.loads(target).get("kind", ""))
    except (ValueError, AttributeError):  # Ansor's targets are no JSON
        return ""


def _row(task: ListedTask) -> dict[str, Any]:
    return {
        **workload_row(task.workload),
        "kind": task.kind,
        "class": task.operator,
        "name": task.name,
        "networks": json.dumps([list(pair) for pair in task.networks]),
        "split": task.split,
        "flops": task.flops,
    }


def _task(row: dict[str, Any]) -> ListedTask:
    return ListedTask(
        workload=row_workload(row),
        kind=row["kind"],
        operator=row["class"],
        name=row["name"],
        flops=row["flops"],
        networks=tuple((str(name), int(weight)) for name, weight in json.loads(row["networks"])),
        split=row["split"],
    )
