"""`tensorese eval`: a model judged on workloads it has never seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

_PATH = click.Path(path_type=Path)


@click.command("eval")
@click.argument("model", type=_PATH)
@click.option("--data", "stores", multiple=True, required=True, type=_PATH, help="Record store.")
@click.option("--platform", help="Whose records and which head; needed when there are several.")
@click.option("--thin", is_flag=True, help="Keep a tenth of each task's near-best programs.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def evaluate(
    model: Path,
    stores: tuple[Path, ...],
    platform: str | None,
    thin: bool,
    device: str,
    as_json: bool,
) -> None:
    """Judge a model on the store's workloads outside its training list."""
    from tensorese.cli.train import pick_device
    from tensorese.evaluation.report import evaluate_model
    from tensorese.models.folder import load_model
    from tensorese.records.store import Store

    saved = load_model(model, device=pick_device(device))
    opened = [Store.open(path) for path in stores]
    result = evaluate_model(saved, opened, platform=platform, thin=thin)
    if as_json:
        click.echo(json.dumps(result))
        return
    _table(result)


def _table(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{result['platform']}: {result['tasks']} unseen tasks, mean per task")
    for name in ("", "model", "random order", "lightgbm"):
        table.add_column(name)
    for k in (1, 5, 10):
        tree = result.get(f"lightgbm_top{k}")
        table.add_row(
            f"top-{k}",
            f"{result[f'top{k}']:.3f}",
            f"{result[f'random_top{k}']:.3f}",
            "" if tree is None else f"{tree:.3f}",
        )
    table.add_row("top-1 pooled", f"{result['top1_pooled']:.3f}", "", "")
    table.add_row("pairwise", f"{result['pairwise']:.3f}", "0.500", "")
    Console().print(table)
    low, high = result["top1_low"], result["top1_high"]
    click.echo(f"95 % interval of top-1 over tasks: {low:.3f} to {high:.3f}")
    if result["small_tasks"]:
        click.echo(f"{result['small_tasks']} tasks under 64 records left out of these figures")
