"""Progress on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import click

T = TypeVar("T")

_BAR_EVERY = 256
_LINE_SECONDS = 10.0


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
    with Progress(*columns, console=Console(stderr=True)) as progress:
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
    said = time.monotonic()
    for item in items:
        yield item
        count += 1
        if time.monotonic() - said > _LINE_SECONDS:
            said = time.monotonic()
            click.echo(f"{label}: {count:,} records so far", err=True)
