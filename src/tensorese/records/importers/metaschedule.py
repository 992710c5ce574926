"""MetaSchedule JSON databases, of TVM 0.27 and older: two files of lines, joined by line number.

A record is `[workload, [trace, run_secs, target, args]]`. It tells neither when it was measured
nor why it failed: a failure is 1e10 s there, and a status without a time here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorese.errors import ImportFormatError, TargetError
from tensorese.language.ansor import Slots
from tensorese.language.constants import complete, take_constants
from tensorese.language.metaschedule import split_trace
from tensorese.records.importers.ansor import NO_TIME
from tensorese.records.importers.lines import Skipped, json_lines, read_each
from tensorese.records.modules import decode_blob, workload_of_module
from tensorese.records.nouns import (
    Measurement,
    Platform,
    Program,
    Sketch,
    Status,
    TensorSpec,
    Workload,
    canonical_json,
    content_id,
)

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
FAILED = "metaschedule recorded 1e10 s: the build or the run failed"
TOOLCHAIN = {
    "format": "metaschedule",
    "lacks": "time, cause of failure, build_secs, repeats, cache state, threads, verification",
}


def database_files(path: Path) -> tuple[Path, Path]:
    """The workload and record files of a database folder, or of one of its two files."""
    folder = path if path.is_dir() else path.parent
    files = []
    for name in (WORKLOADS, RECORDS):
        paths = [folder / f"{name}{suffix}" for suffix in ("", ".gz", ".zst")]
        existing = next((p for p in paths if p.exists()), None)
        if existing is None:
            raise ImportFormatError(
                f"a MetaSchedule database has {WORKLOADS} and {RECORDS} (plain, .gz or .zst), "
                f"but {folder} has no {name}"
            )
        files.append(existing)
    return files[0], files[1]


def read_metaschedule(path: Path, platform: str, skipped: Skipped) -> Iterator[Measurement]:
    workload_file, record_file = database_files(path)
    modules = [_module_line(workload_file, *line) for line in json_lines(workload_file, Skipped())]
    reader = _Reader(modules, platform, f"imported:{record_file.parent.name}")
    return read_each(record_file, skipped, reader.read, "a MetaSchedule record")


def _module_line(path: Path, number: int, line: Any) -> tuple[str, str]:
    try:
        key, blob = line
        return str(key), decode_blob(blob)
    except (TypeError, ValueError, RecursionError) as error:
        raise ImportFormatError(
            f"{path}:{number}: a workload is [hash, base64 of a module], but this line is not"
        ) from error


class _Reader:
    def __init__(self, modules: list[tuple[str, str]], platform: str, origin: str) -> None:
        self.modules = modules
        self.platform = platform
        self.origin = origin
        self.workloads: dict[int, Workload] = {}
        self.sketches: dict[tuple[str, Slots], Sketch] = {}
        self.repeats: Counter[tuple[str, str]] = Counter()

    def read(self, line: list[Any]) -> Measurement | None:
        """None for a record that was never measured: there is nothing to keep."""
        index, (trace, costs, target, args) = line
        if costs is None:
            return None
        program = self._program(index, trace, args, canonical_json(target))
        if not all(map(math.isfinite, costs)):
            raise ValueError("a time that is no number")
        failed = not costs or max(costs) >= NO_TIME or min(costs) <= 0
        run_secs = () if failed else tuple(float(cost) for cost in costs)
        return Measurement(
            program=program,
            platform=Platform(name=self.platform, target=canonical_json(target)),
            status=Status.RUN_ERROR if failed else Status.OK,
            run_secs=run_secs,
            error=FAILED if failed else "",
            origin=self.origin,
            toolchain=TOOLCHAIN,
            time=0.0,
            id=self._id(program, canonical_json(run_secs)),
        )

    def _id(self, program: Program, run_secs: str) -> str:
        """The same line twice is two measurements; the same database twice is not."""
        name = (program.id, run_secs)
        self.repeats[name] += 1
        return content_id("imported", self.platform, *name, str(self.repeats[name]))

    def _program(self, index: int, trace: list[Any], args: list[Any], target: str) -> Program:
        workload = self.workloads.get(index)
        if workload is None:
            if type(index) is not int or index < 0:
                raise IndexError("a workload is named by its line")
            key, module = self.modules[index]
            specs = [TensorSpec(shape=tuple(shape), dtype=dtype) for _, dtype, shape in args]
            workload = self.workloads[index] = workload_of_module(module, key, specs)
        body, slots, decisions, tail = split_trace(trace)
        if workload.module:
            body = _without_constants(body, target)
        sketch = self.sketches.setdefault(
            (body, slots), Sketch(dialect="metaschedule", body=body, slots=slots)
        )
        return Program(workload=workload, sketch=sketch, decisions=decisions, tail=tail)


def _without_constants(body: str, target: str) -> str:
    """Canonical where the platform's numbers are those its target implies; search may have changed
    them, which makes another program."""
    canonical, _ = take_constants(body)
    try:
        return canonical if complete(canonical, target) == body else body
    except TargetError:
        return body
