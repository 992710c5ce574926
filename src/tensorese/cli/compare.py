"""`tensorese compare`: every model on every platform's test rows, one table."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from tensorese.evaluation.compare import Baselines
    from tensorese.evaluation.rows import ComparedRow

_PATH = click.Path(path_type=Path)
_OWN = (Path("data/cpu"), Path("data/h200"))
_AGAIN = Path("data/again")


@click.command()
@click.option("--data", "stores", multiple=True, type=_PATH, help="Record store; data/ if absent.")
@click.option("--platform", "platforms", multiple=True, help="Only these.")
@click.option("--model", "models", multiple=True, type=_PATH, help="Folder; the shipped if absent.")
@click.option("--again", multiple=True, type=_PATH, help="Second measurements: the ceiling.")
@click.option("--networks", type=_PATH, help="Who uses the tasks; tasks.parquet beside the store.")
@click.option("--trees", is_flag=True, help="Also LightGBM and XGBoost, trained on the same data.")
@click.option("--costs", is_flag=True, help="Also what training, features and scores cost.")
@click.option("--rows", type=_PATH, help="JSON file of rows: those in it are not made again.")
@click.option("--json", "as_json", is_flag=True, help="Print rows as JSON.")
def compare(
    stores: tuple[Path, ...],
    platforms: tuple[str, ...],
    models: tuple[Path, ...],
    again: tuple[Path, ...],
    networks: Path | None,
    trees: bool,
    costs: bool,
    rows: Path | None,
    as_json: bool,
) -> None:
    """Judge models on the rows marked as test: top-k beside random order and the noise."""
    from tensorese.cli.progress import lowering_told
    from tensorese.evaluation import compare as comparing
    from tensorese.models.catalog import kept_models
    from tensorese.records.store import Store

    paths = stores or tuple(path for path in _OWN if path.is_dir())
    if not paths:
        raise click.UsageError("--data STORE must be given where there is no data/cpu or data/h200")
    chosen = list(models) or list(dict.fromkeys(model.folder for model in kept_models()))
    second = again or ((_AGAIN,) if not stores and _AGAIN.is_dir() else ())
    with ExitStack() as stack:
        opened, others = (
            [stack.enter_context(Store.open(path)) for path in group] for group in (paths, second)
        )
        _check(platforms, set().union(*(store.platforms() for store in opened)))
        compared = comparing.compare(
            opened,
            chosen,
            platforms=platforms,
            again=others,
            networks=networks,
            baselines=_trees() if trees else None,
            kept=rows,
            costs=costs,
            listener=stack.enter_context(lowering_told()),
        )
    if as_json:
        click.echo(json.dumps([row.to_dict() for row in compared]))
        return
    # A file or a pipe has no width: names are not cut there.
    from rich.console import Console

    console = Console(markup=False) if sys.stdout.isatty() else Console(width=160, markup=False)
    _table(compared, console)
    if costs:
        _costs(compared, console)
    _networks(compared, console)


def _trees() -> Baselines:
    from tensorese.training.trees import baselines, installed_trees

    if not installed_trees():
        raise click.UsageError("--trees needs LightGBM or XGBoost: install tensorese[baselines]")
    return baselines


def _check(platforms: tuple[str, ...], known: set[str]) -> None:
    from tensorese.errors import did_you_mean

    for name in platforms:
        if name not in known:
            raise click.UsageError(
                f"--platform must be one of {', '.join(sorted(known))}, but got {name!r}"
                f"{did_you_mean(name, known)}"
            )


def _twice(row: ComparedRow) -> str:
    """Top-1 and top-5 among the programs that the oracle ranks."""
    means = (sum(ratios.values()) / len(ratios) for ratios in row.twice.values())
    return " / ".join(f"{mean:.3f}" for mean in means)


def _table(rows: list[ComparedRow], console: Console) -> None:
    from rich.table import Table

    table = Table(title="test rows: means per task; pooled over tasks as networks use them")
    columns = ["platform", "system", "top-1", "95 %", "top-5", "pooled top-1", "top-5"]
    twice = any(row.twice for row in rows)
    measured = ["of those measured twice"] if twice else []
    for name in (*columns, "pairwise", "tasks", *measured, ""):
        table.add_column(name)
    for row in rows:
        figures, pooled = row.figures, row.pooled
        low, high = figures.get("top1_low"), figures.get("top1_high")
        pairwise = figures.get("pairwise")
        table.add_row(
            row.platform,
            row.system,
            f"{figures['top1']:.3f}",
            "" if low is None else f"{low:.3f}-{high:.3f}",
            f"{figures['top5']:.3f}",
            *(f"{pooled[key]:.3f}" if pooled else "" for key in ("top1_pooled", "top5_pooled")),
            "" if pairwise is None else f"{pairwise:.3f}",
            f"{figures['tasks']:.0f}",
            *([_twice(row)] if twice else []),
            row.note,
        )
    console.print(table)


def _costs(rows: list[ComparedRow], console: Console) -> None:
    from rich.table import Table

    table = Table(title="costs, of one core where nothing else is said")
    for name in ("platform", "system", "training s", "feature us", "scores/s", "KB"):
        table.add_column(name)
    for row in rows:
        if row.costs:
            cost = row.costs
            trained = cost["training_seconds"]
            table.add_row(
                row.platform,
                row.system,
                "" if trained is None else f"{trained:.0f}",
                f"{cost['feature_us']:,.0f}",
                f"{cost['scores_a_second']:,.0f}",
                f"{cost['bytes'] / 1000:,.0f}",
            )
    console.print(table)


def _networks(rows: list[ComparedRow], console: Console) -> None:
    """Of every system that knows the platform; those of another's head only fill the table."""
    from tensorese.cli.network_view import cost_lines, network_lines

    for row in rows:
        if "networks" not in row.pooled or row.note:
            continue
        console.print(f"\n{row.platform}, {row.system}:", highlight=False)
        for line in (*network_lines(row.pooled), *cost_lines(row.pooled["costs"])):
            console.print(f"  {line}", highlight=False, soft_wrap=True)
