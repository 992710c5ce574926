"""`tensorese eval`: a model judged on workloads it has never seen."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

_PATH = click.Path(path_type=Path)


@click.command("eval")
@click.argument("model", type=_PATH)
@click.option("--data", "stores", multiple=True, required=True, type=_PATH, help="Record store.")
@click.option("--platform", help="Whose records and which head; needed when there are several.")
@click.option("--thin", is_flag=True, help="Keep a tenth of each task's near-best programs.")
@click.option("--networks", type=_PATH, help="Who uses the tasks; tasks.parquet beside the store.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def evaluate(
    model: Path,
    stores: tuple[Path, ...],
    platform: str | None,
    thin: bool,
    networks: Path | None,
    as_json: bool,
) -> None:
    """Judge a model on the store's workloads outside its training list."""
    from tensorese.cli.progress import lowering_told
    from tensorese.evaluation.evaluate import evaluate_model
    from tensorese.models.base import load_model
    from tensorese.records.store import Store

    loaded = load_model(model)
    with ExitStack() as stack:
        opened = [stack.enter_context(Store.open(path)) for path in stores]
        result = evaluate_model(
            loaded,
            opened,
            platform=platform,
            thin=thin,
            networks=networks,
            listener=stack.enter_context(lowering_told()),
        )
    if as_json:
        click.echo(json.dumps(result))
        return
    _table(result)


def _table(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from tensorese.cli.network_view import cost_lines, network_lines

    table = Table(title=f"{result['platform']}: {result['tasks']} unseen tasks")
    for name in ("", "mean per task", "random order", "pooled", "random order"):
        table.add_column(name)
    for k in (1, 5, 10):
        keys = (f"top{k}", f"random_top{k}", f"top{k}_pooled", f"random_top{k}_pooled")
        table.add_row(f"top-{k}", *(f"{result[key]:.3f}" for key in keys))
    table.add_row("pairwise", f"{result['pairwise']:.3f}", "0.500", "", "")
    Console(markup=False).print(table)
    low, high = result["top1_low"], result["top1_high"]
    click.echo(f"95 % interval of top-1 over tasks: {low:.3f} to {high:.3f}")
    if result["small_tasks"]:
        click.echo(f"{result['small_tasks']} tasks under five valid programs are not judged")
    for line in (*network_lines(result), *cost_lines(result["costs"])):
        click.echo(line)
