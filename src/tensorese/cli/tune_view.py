"""What a tuning run looks like: a live table on a terminal, lines elsewhere, or JSON events."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from tensorese.measure.peak import believed
from tensorese.search.loop.events import BatchDone, Callback, Ended, NewBest, Started, TaskLine

if TYPE_CHECKING:
    from tensorese.search.loop.tune_tasks import RunOutcome

_LINE_SECONDS = 10.0


def process_start() -> float:
    """When this process began, on `time.monotonic`'s clock: imports count."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)


def view_for(*, as_json: bool) -> View:
    if as_json:
        return JsonView()
    return TableView() if sys.stderr.isatty() else LineView()


class View(Callback):
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def summary(self, run: RunOutcome) -> None:
        """The summary, on stdout."""
        if run.state == "interrupted":
            click.echo(f"interrupted after {run.trials} trials; the same command goes on")
        tuned = f"{len(run.winners)} tasks tuned"
        if run.chosen:
            tuned = f"programs chosen for {len(run.chosen)} tasks"
        click.echo(f"{tuned} with {run.trials} trials in {run.seconds:.0f} s ({run.reason})")
        if run.certificate:
            from tensorese.cli.compile import lines_of

            for line in lines_of(run.certificate):
                click.echo(line)
        click.echo(
            f"everything is in {run.path}" + (", see report.html" if run.certificate else "")
        )


class JsonView(View):
    """One event a line on stdout; `event` names its kind."""

    def _print(self, kind: str, **fields: Any) -> None:
        click.echo(json.dumps({"event": kind, **fields}, allow_nan=False))

    def on_start(self, event: Started) -> None:
        self._print("start", **dataclasses.asdict(event))

    def on_batch(self, event: BatchDone) -> None:
        statuses = [m.status.value for m in event.measurements]
        self._print(
            "batch",
            task=dataclasses.asdict(event.task),
            trials=event.trials,
            secs=event.secs,
            left=event.left,
            statuses=statuses,
            phases=event.phases,
        )

    def on_best(self, event: NewBest) -> None:
        best = event.measurement
        self._print(
            "best",
            workload=event.task.workload,
            program=best.program.id,
            latency=best.latency,
            before=event.before,
            origin=best.origin,
        )

    def on_end(self, event: Ended) -> None:
        self._print("end", **dataclasses.asdict(event))

    def on_note(self, text: str) -> None:
        self._print("note", text=text)

    def summary(self, run: RunOutcome) -> None:
        self._print(
            "run",
            path=str(run.path),
            state=run.state,
            trials=run.trials,
            seconds=run.seconds,
            latencies={task: winner.latency for task, winner in run.winners.items()},
            chosen=run.chosen,
            certificate=run.certificate,
        )


class LineView(View):
    """Off a terminal: a line when something changed, at most every few seconds."""

    def __init__(self) -> None:
        self.printed_at = -math.inf
        self.tasks: dict[str, TaskLine] = {}
        self.peak: float | None = None

    def on_start(self, event: Started) -> None:
        self.peak = event.peak_gflops
        self.tasks = {task.workload: task for task in event.tasks}
        known = f", {event.known} trials known already" if event.known else ""
        self.on_note(
            f"tuning {event.network}: {len(event.tasks)} tasks on {event.platform}, "
            f"{_limits(event.limits)}{known}"
        )

    def on_batch(self, event: BatchDone) -> None:
        self.tasks[event.task.workload] = event.task
        if time.monotonic() - self.printed_at < _LINE_SECONDS:
            return
        self.printed_at = time.monotonic()
        left = "" if event.left is None else f", {_span(event.left)} left"
        touched = [task for task in self.tasks.values() if task.latency]
        total = sum(t.weight * (t.latency or 0.0) for t in touched)
        failed = sum(t.failures for t in self.tasks.values())
        self.on_note(
            f"{_span(event.secs)}: {event.trials} trials ({failed} failed), "
            f"{len(touched)} of {len(self.tasks)} tasks, {total * 1e3:.3f} ms together{left}"
        )

    def on_end(self, event: Ended) -> None:
        peak = believed(self.peak, (task.gflops or 0.0 for task in event.tasks))
        for task in event.tasks:
            latency = f"{task.latency * 1e3:.4f} ms" if task.latency else "untuned"
            if task.chosen:
                latency = f"not timed, from {task.chosen}"
            rate = f", {task.gflops:.1f} GFLOPS" if task.gflops else ""
            if task.gflops and peak:
                rate += f" ({100 * task.gflops / peak:.0f} % of peak)"
            note = f" ({task.note})" if task.note else ""
            self.on_note(f"{task.name} x{task.weight}: {latency}{rate}, {task.trials} trials{note}")

    def on_note(self, text: str) -> None:
        click.echo(text, err=True)


class TableView(LineView):
    """A table that is redrawn after every batch; notes scroll above it."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live

        self.console = Console(stderr=True, markup=False)
        self.live = Live(console=self.console, auto_refresh=False, transient=False)
        self.status = ""

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def on_batch(self, event: BatchDone) -> None:
        self.tasks[event.task.workload] = event.task
        left = "" if event.left is None else f", about {_span(event.left)} left"
        self.status = f"{_span(event.secs)}, {event.trials} trials{left}"
        self._draw()

    def on_end(self, event: Ended) -> None:
        self.tasks = {task.workload: task for task in event.tasks}
        self.status = f"{_span(event.secs)}, {event.trials} trials: {event.reason}"
        self._draw()

    def on_note(self, text: str) -> None:
        self.console.print(text, highlight=False)

    def _draw(self) -> None:
        tasks = list(self.tasks.values())
        peak = believed(self.peak, (task.gflops or 0.0 for task in tasks))
        table = task_table(tasks, self.status, peak)
        self.live.update(table, refresh=True)


def task_table(tasks: Sequence[TaskLine], caption: str, peak: float | None = None) -> Any:
    """MetaSchedule's columns, which people know; `peak` in GFLOPS adds one."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("task", overflow="ellipsis", no_wrap=True, max_width=44)
    names = ["weight", "GFLOPS", *(["% peak"] if peak else []), "ms", "trials", "failed"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for task in tasks:
        rate = task.gflops
        cells = [str(task.weight), f"{rate:.1f}" if rate else "-"]
        if peak:
            cells.append(f"{100 * rate / peak:.0f}" if rate else "-")
        cells.append(f"{task.latency * 1e3:.4f}" if task.latency else "-")
        table.add_row(task.name, *cells, str(task.trials), str(task.failures))
    return table


def _limits(limits: dict[str, Any]) -> str:
    parts = []
    if limits.get("trials"):
        parts.append(f"{limits['trials']} trials")
    if limits.get("seconds"):
        parts.append(_span(limits["seconds"]))
    return " or ".join(parts) or "measuring nothing"


def _span(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60}:{whole % 60:02d} min"
