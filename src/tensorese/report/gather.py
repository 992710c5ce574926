"""What a report shows, read from a run folder; every part may be missing."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorese.measure.peak import believed
from tensorese.records.run_folder import BENCH, BEST, CERTIFICATE, RunFolder

Point = tuple[float, float]
OUTCOME = ("program_id", "workload_id", "status", "latency", "error")


@dataclass(kw_only=True)
class TaskReport:
    """One row of the task table."""

    workload: str
    name: str
    operator: str
    shapes: Sequence[str]
    weight: int
    flops: float
    latency: float = math.nan
    trials: int = 0
    failures: int = 0
    chosen: str = ""
    """Who proposed the program of a task that nobody timed."""
    history: list[Point] = field(default_factory=list)
    """Trials of this task so far against its best seconds."""

    @property
    def gflops(self) -> float:
        return self.flops / self.latency / 1e9 if self.latency > 0 and self.flops else math.nan


@dataclass(frozen=True, kw_only=True)
class Report:
    head: Mapping[str, Any]
    tasks: Sequence[TaskReport]
    by_trials: Sequence[Point]
    """Trials against seconds of all tasks together."""
    by_time: Sequence[Point]
    failures: Sequence[tuple[str, int, str]]
    """Status, how often, and the error text seen most."""
    predicted: Sequence[Point]
    """Where the model ranked a program in its batch (1 is first) against its speed over its
    task's best."""
    agreement: float
    """Mean rank correlation of scores and speeds inside the batches; NaN without scores."""
    phases: Mapping[str, float]
    trials: int
    seconds: float
    """Of tuning, as far as the run has come; NaN before the first batch."""
    certificate: Mapping[str, Any]
    bench: Mapping[str, Any]

    @property
    def compared(self) -> Mapping[str, Any]:
        """The newest comparison of systems: `bench` where it was run, else the certificate's."""
        return self.bench if self.bench.get("latency") else self.certificate

    @property
    def peak(self) -> float:
        """NaN where none was measured, or one too low to be true."""
        rates = (task.gflops for task in self.tasks if math.isfinite(task.gflops))
        return _number(believed(self.head.get("peak_gflops"), rates))

    @property
    def sum_of_tasks(self) -> float:
        known = [t.weight * t.latency for t in self.tasks if t.latency == t.latency]
        return sum(known) if known else math.nan


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a report is drawn from: the contents of a run folder's files."""

    head: Mapping[str, Any]
    batches: Sequence[Mapping[str, Any]]
    outcomes: Sequence[Mapping[str, Any]]
    """Of every measurement, the columns of `OUTCOME`."""
    best: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] = field(default_factory=dict)
    bench: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, run: Path) -> Parts:
        folder = RunFolder.read(run)
        return cls(
            head=folder.head,
            batches=folder.batches,
            outcomes=folder.outcomes(OUTCOME),
            best=folder.optional(BEST),
            certificate=folder.optional(CERTIFICATE),
            bench=folder.optional(BENCH),
        )


def gather(run: Path) -> Report:
    return assemble(Parts.read(run))


def assemble(parts: Parts) -> Report:
    tasks = _tasks(parts)
    by_trials, by_time = _progress(tasks, parts.batches)
    predicted, agreement = _predictions(parts.batches, parts.outcomes)
    return Report(
        head=parts.head,
        tasks=tasks,
        by_trials=by_trials,
        by_time=by_time,
        failures=_failures(parts.outcomes),
        predicted=predicted,
        agreement=agreement,
        phases=_phases(parts.batches),
        trials=sum(len(batch.get("proposed", ())) for batch in parts.batches),
        seconds=_seconds(parts),
        certificate=parts.certificate,
        bench=parts.bench,
    )


def _seconds(parts: Parts) -> float:
    """Of tuning so far; the head says it when a sitting ends."""
    known = [_number(parts.head.get("seconds")), *(_number(b.get("secs")) for b in parts.batches)]
    return max((secs for secs in known if secs == secs), default=math.nan)


def _tasks(parts: Parts) -> list[TaskReport]:
    failed = Counter(
        row["workload_id"] for row in parts.outcomes if row["status"] not in ("ok", "censored")
    )
    tasks = {}
    for row in parts.head.get("tasks", ()):
        if not row.get("weight", 1):  # of a way to compute a convolution that was not taken
            continue
        workload = str(row["workload"])
        best = parts.best.get(workload, {})
        tasks[workload] = TaskReport(
            workload=workload,
            name=str(row.get("name", "")),
            operator=str(row.get("operator", "")),
            shapes=[str(shape) for shape in row.get("shapes", ())],
            weight=int(row.get("weight", 1)),
            flops=_number(row.get("flops")),
            latency=_number(best.get("latency")),
            failures=failed[workload],
            chosen=_chosen(best),
        )
    for batch in parts.batches:
        task = tasks.get(str(batch.get("task")))
        if task is not None:
            task.trials += len(batch.get("proposed", ()))
            if batch.get("best") is not None:
                task.history.append((float(task.trials), float(batch["best"])))
    running = parts.head.get("state") == "running"  # and what was chosen last is out of date
    for task in tasks.values():
        if task.history and (running or math.isnan(task.latency)):
            task.latency = task.history[-1][1]
    return list(tasks.values())


def _chosen(entry: Mapping[str, Any]) -> str:
    timed = entry.get("latency") is not None
    return "" if timed or not entry else str(entry.get("origin") or "unknown")


def _progress(
    tasks: Sequence[TaskReport], batches: Sequence[Mapping[str, Any]]
) -> tuple[list[Point], list[Point]]:
    """The network's latency as tuning went on; a task not yet reached counts with its first."""
    weights = {task.workload: task.weight for task in tasks}
    current = {task.workload: task.history[0][1] for task in tasks if task.history}
    by_trials: list[Point] = []
    by_time: list[Point] = []
    trials = 0
    for batch in batches:
        trials += len(batch.get("proposed", ()))
        workload = str(batch.get("task"))
        if batch.get("best") is not None and workload in current:
            current[workload] = float(batch["best"])
        total = sum(weights[one] * secs for one, secs in current.items())
        if total > 0:
            by_trials.append((float(trials), total))
            by_time.append((_number(batch.get("secs")), total))
    return by_trials, by_time


def _failures(outcomes: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, str]]:
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in outcomes:
        if row["status"] != "ok":
            first = str(row["error"] or "").strip().splitlines()[:1]
            texts[str(row["status"])][first[0][:200] if first else ""] += 1
    counted = [
        (status, sum(errors.values()), errors.most_common(1)[0][0])
        for status, errors in texts.items()
    ]
    return sorted(counted, key=lambda row: -row[1])


def _predictions(
    batches: Sequence[Mapping[str, Any]], outcomes: Sequence[Mapping[str, Any]]
) -> tuple[list[Point], float]:
    latency: dict[str, float] = {}
    fastest: dict[str, float] = {}
    for row in outcomes:
        secs = _number(row["latency"])
        if secs > 0:
            program, task = str(row["program_id"]), str(row["workload_id"])
            latency[program] = min(secs, latency.get(program, math.inf))
            fastest[task] = min(secs, fastest.get(task, math.inf))
    points: list[Point] = []
    agreements: list[float] = []
    for batch in batches:
        scored = [
            (float(p["score"]), latency[p["program"]])
            for p in batch.get("proposed", ())
            if p.get("score") is not None and p["program"] in latency
        ]
        if len(scored) < 3:
            continue
        ranks = _ranks([score for score, _ in scored])
        speeds = [fastest[str(batch["task"])] / secs for _, secs in scored]
        points.extend(zip(ranks, speeds, strict=True))
        correlation = _correlation(ranks, _ranks(speeds))
        if correlation == correlation:
            agreements.append(correlation)
    return points, sum(agreements) / len(agreements) if agreements else math.nan


def _ranks(values: Sequence[float]) -> list[float]:
    """0 for the lowest to 1 for the highest, equal values in the middle of their places."""
    order = sorted(values)
    last = max(len(values) - 1, 1)
    places: dict[float, list[int]] = defaultdict(list)
    for place, value in enumerate(order):
        places[value].append(place)
    return [sum(places[v]) / len(places[v]) / last for v in values]


def _correlation(x: Sequence[float], y: Sequence[float]) -> float:
    mx, my = sum(x) / len(x), sum(y) / len(y)
    xy = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    xx, yy = sum((a - mx) ** 2 for a in x), sum((b - my) ** 2 for b in y)
    return xy / math.sqrt(xx * yy) if xx > 0 and yy > 0 else math.nan


def _phases(batches: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for batch in batches:
        for phase, secs in batch.get("phases", {}).items():
            total[str(phase)] += _number(secs)
    return {phase: secs for phase, secs in total.items() if secs > 0}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
