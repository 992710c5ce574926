"""Progress on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

if TYPE_CHECKING:
    from tensorese.evaluation.lowered_programs import Listener
    from tensorese.measure.session import MeasuredTally

T = TypeVar("T")

_BAR_EVERY = 256
_LINE_SECONDS = 10.0
_FINE = ("ok", "censored")


def counted(items: Iterable[T], label: str) -> Iterator[T]:
    """Passes the items on, saying how many there were so far."""
    return _bar(items, label) if sys.stderr.isatty() else _lines(items, label)


def _bar(items: Iterable[T], label: str) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f} records"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True, markup=False)) as progress:
        task = progress.add_task(label, total=None)
        count = 0
        for item in items:
            yield item
            count += 1
            if count % _BAR_EVERY == 0:
                progress.update(task, completed=count)
        progress.update(task, completed=count)


def _lines(items: Iterable[T], label: str) -> Iterator[T]:
    count = 0
    printed_at = time.monotonic()
    for item in items:
        yield item
        count += 1
        if time.monotonic() - printed_at > _LINE_SECONDS:
            printed_at = time.monotonic()
            click.echo(f"{label}: {count:,} records so far", err=True)


class Steps:
    """Progress through a known number of things: how many are done, and the time left."""

    def __init__(self, total: int, label: str) -> None:
        self.total = total
        self.label = label
        self.started = self.printed_at = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True, markup=False))
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=self.total)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, of_now: int, text: str = "") -> None:
        """`of_now` of them were done since this began: what the rate is of."""
        now, text = time.monotonic(), text or self.label
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=self.total, description=text)
        elif now - self.printed_at > _LINE_SECONDS:
            self.printed_at = now
            rate = of_now / (now - self.started)
            left = max(0, self.total - done) / rate if rate else 0.0
            click.echo(f"{text}: {done} of {self.total}, {rate:.1f}/s, {left:.0f} s left", err=True)


class Trials(Steps):
    """Progress of a measuring session: done, rate, failures, time left."""

    def update(self, tally: MeasuredTally) -> None:
        failed = sum(n for status, n in tally.by_status.items() if status not in _FINE)
        text = f"{self.label} ({failed} failed)" if failed else ""
        self.show(len(tally.measured) + tally.known, len(tally.measured), text)


@contextmanager
def lowering_told() -> Iterator[Listener]:
    """Who asks for lowered programs says what is done, and how far it is."""
    from tensorese.evaluation.lowered_programs import Listener

    with ExitStack() as stack:
        shown: list[Steps] = []
        known = 0

        def progress(done: int, total: int) -> None:
            nonlocal known
            if not shown or shown[0].total != total:
                stack.close()
                shown[:] = [stack.enter_context(Steps(total, "lowering programs"))]
                known = done
            shown[0].show(done, done - known)

        yield Listener(say=lambda text: click.echo(text, err=True), progress=progress)
