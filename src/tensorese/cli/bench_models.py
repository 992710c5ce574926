"""`tensorese bench-models`: every model on every platform's test rows, one table."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tensorese.evaluation.model_table import Row

_PATH = click.Path(path_type=Path)
_OWN = (Path("data/cpu"), Path("data/h200"))
_AGAIN = Path("data/again")


@click.command("bench-models")
@click.option("--data", "stores", multiple=True, type=_PATH, help="Record store; data/ if absent.")
@click.option("--platform", "platforms", multiple=True, help="Only these.")
@click.option("--model", "models", multiple=True, type=_PATH, help="Folder; the shipped if absent.")
@click.option("--again", multiple=True, type=_PATH, help="Second measurements: the ceiling.")
@click.option("--trees", is_flag=True, help="Also LightGBM and XGBoost, trained on the same data.")
@click.option("--json", "as_json", is_flag=True, help="Print rows as JSON.")
def bench_models(
    stores: tuple[Path, ...],
    platforms: tuple[str, ...],
    models: tuple[Path, ...],
    again: tuple[Path, ...],
    trees: bool,
    as_json: bool,
) -> None:
    """Judge models on the rows marked as test: top-k beside random order and the noise."""
    from tensorese.evaluation import model_table
    from tensorese.evaluation.trees import installed_trees
    from tensorese.models.catalog import kept_models
    from tensorese.records.store import Store

    paths = stores or tuple(path for path in _OWN if path.is_dir())
    if not paths:
        raise click.UsageError("--data STORE must be given where there is no data/cpu or data/h200")
    chosen = list(models) or model_table.folders_of(list(kept_models()))
    if trees and not installed_trees():
        raise click.UsageError("--trees needs LightGBM or XGBoost: install tensorese[baselines]")
    second = again or ((_AGAIN,) if not stores and _AGAIN.is_dir() else ())
    with ExitStack() as stack:
        opened, others = (
            [stack.enter_context(Store.open(path)) for path in group] for group in (paths, second)
        )
        known = set().union(*(store.platforms() for store in opened))
        _check(platforms, known)
        rows = []
        for store in opened:
            mine = [name for name in platforms if name in store.platforms()]
            if mine or not platforms:
                rows += model_table.bench_models(
                    [store],
                    chosen,
                    platforms=mine,
                    again=others,
                    trees=trees,
                    say=lambda text: click.echo(text, err=True),
                )
    if as_json:
        click.echo(json.dumps([row.to_dict() for row in rows]))
        return
    _table(rows)


def _check(platforms: tuple[str, ...], known: set[str]) -> None:
    from tensorese.errors import did_you_mean

    for name in platforms:
        if name not in known:
            raise click.UsageError(
                f"--platform must be one of {', '.join(sorted(known))}, but got {name!r}"
                f"{did_you_mean(name, known)}"
            )


def _twice(row: Row) -> str:
    """Top-1 and top-5 among the programs that the oracle ranks."""
    means = (sum(ratios.values()) / len(ratios) for ratios in row.twice.values())
    return " / ".join(f"{mean:.3f}" for mean in means)


def _table(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="test rows, mean per task")
    columns = ["platform", "system", "top-1", "95 %", "top-5", "pairwise", "tasks"]
    twice = any(row.twice for row in rows)
    for name in (*columns, *(["of those measured twice"] if twice else []), ""):
        table.add_column(name)
    for row in rows:
        figures = row.figures
        low, high = figures.get("top1_low"), figures.get("top1_high")
        pairwise = figures.get("pairwise")
        table.add_row(
            row.platform,
            row.system,
            f"{figures['top1']:.3f}",
            "" if low is None else f"{low:.3f}-{high:.3f}",
            f"{figures['top5']:.3f}",
            "" if pairwise is None else f"{pairwise:.3f}",
            f"{figures['tasks']:.0f}",
            *([_twice(row)] if twice else []),
            row.note,
        )
    # A file or a pipe has no width: names are not cut there.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(table)
