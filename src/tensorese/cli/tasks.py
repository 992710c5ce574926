"""`tensorese tasks`: what there is to tune in a model."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from tensorese.cli.completion import model_files
from tensorese.cli.shape_options import fixed_by, shape_options

if TYPE_CHECKING:
    from tensorese.workloads import Task

_UNCUT = 1000
"""Characters of a line that nobody sees on a screen."""


@click.command()
@click.argument("model", shell_complete=model_files)
@click.option("--target", default="host", show_default=True, help="host, cuda:DEVICE or JSON.")
@click.option(
    "--space/--no-space", default=True, help="Build each task's space, about 0.1 s a task, or not."
)
@click.option("--top", type=click.IntRange(1), default=None, help="Only the N largest.")
@click.option("--no-winograd", is_flag=True, help="As tune --no-winograd has them (CPUs).")
@click.option("--no-attention", is_flag=True, help="As tune --no-attention has them (CPUs).")
@click.option("--json", "as_json", is_flag=True, help="Print the tasks as JSON.")
@shape_options
def tasks(
    model: str,
    target: str,
    space: bool,
    top: int | None,
    no_winograd: bool,
    no_attention: bool,
    as_json: bool,
    shape: tuple[str, ...],
    dim: tuple[str, ...],
    value: tuple[str, ...],
) -> None:
    """List the tasks of MODEL, the largest first: a .onnx or .pt2 file, or zoo:NAME[@shape].

    A line a task: its share of the network's FLOPs, how often the network runs it (weight), its
    kind, the operators fused in it, and its shapes, inputs before the output.
    A shape is given as 8x3x256x256; for .onnx files with open shapes, FILE.onnx@1x3x224x224, or by
    --shape, --dim and --value.
    The space counts a task's programs over all sketches, before a GPU's limits; sketches in
    brackets are drawn by replay and not counted.
    """
    from tensorese.cli.quiet import libraries_logged
    from tensorese.targets import Target

    parsed = Target.parse(target)  # a wrong target is refused before a network is read
    with libraries_logged():  # there is no run to keep them in, and nothing to do about them
        from tensorese.workloads import load_variants, tasks_of_all

        networks = load_variants(model, **fixed_by(shape, dim, value))
        network = networks[0]
        for note in network.notes:
            click.echo(note, err=True)
        extracted = tasks_of_all(
            networks, parsed.to_json(), winograd=not no_winograd, attention=not no_attention
        )
        total = sum(task.flops * task.weight for task in extracted)
        extracted.sort(key=lambda task: -task.flops * task.weight)
        rows = [_row(task, space) for task in extracted[:top]]
    if as_json:
        click.echo(json.dumps({"network": network.name, "target": parsed.to_json(), "tasks": rows}))
        return
    if rows:
        _table(rows, total, space)
    if extracted[len(rows) :]:
        rest = 1 - sum(row["flops"] * row["weight"] for row in rows) / (total or 1)
        click.echo(f"and {len(extracted) - len(rows)} more, {100 * rest:.1f}% of the FLOPs")
    runs = sum(task.weight for task in extracted)
    click.echo(
        f"{network.name}: {len(extracted)} tasks, {runs} kernels a run, {total / 1e9:.3f} GFLOPs"
    )


def _row(task: Task, space: bool) -> dict[str, Any]:
    described = {
        "name": task.name,
        "operator": task.operator,
        "shapes": ["x".join(map(str, arg.shape)) for arg in task.workload.args],
        "dtype": task.workload.args[0].dtype,
        "flops": task.flops,
        "weight": task.weight,
        "workload": task.workload.id,
    }
    return {**described, **_space(task)} if space else described


def _space(task: Task) -> dict[str, Any]:
    from tensorese.space.counting import count
    from tensorese.space.space import task_space
    from tensorese.space.tiles import SpaceError
    from tensorese.targets import Target

    try:
        sketches = task_space(task.module, Target.from_json(task.target)).sketches
    except SpaceError:  # it keeps its untuned kernel
        sketches = ()
    covered = [sketch for sketch in sketches if sketch.covered]
    return {
        "sketches": len(sketches),
        "replayed": len(sketches) - len(covered),
        "space": sum(count(sketch) for sketch in covered),
    }


def _table(rows: list[dict[str, Any]], total: float, space: bool) -> None:
    """What does not fit on a terminal's line is cut there; a file or a pipe gets all of it."""
    from rich.console import Console
    from rich.table import Table

    numbers = ("share", "weight", "MFLOPs", *(("sketches", "space") if space else ()))
    table = Table(box=None, pad_edge=False)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("kind", "operators", "shapes"):
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for row in rows:
        *inputs, output = row["shapes"]
        dtype = "" if row["dtype"] == "float32" else f" {row['dtype']}"
        table.add_row(
            f"{100 * row['flops'] * row['weight'] / (total or 1):.1f}%",
            str(row["weight"]),
            f"{row['flops'] / 1e6:.2f}",
            *(_size(row) if space else ()),
            row["operator"],
            row["name"],
            f"{' '.join(inputs)} > {output}{dtype}",
        )
    width = None if sys.stdout.isatty() else _UNCUT
    Console(markup=False, highlight=False, width=width).print(table)


def _size(row: dict[str, Any]) -> tuple[str, str]:
    replayed = f" ({row['replayed']})" if row["replayed"] else ""
    few = row["space"] < 10_000
    return f"{row['sketches']}{replayed}", str(row["space"]) if few else f"{row['space']:.1e}"
