"""`tensorese demo`: real candidates of one conv2d on this CPU, the best against the naive one."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.option("--trials", default=48, show_default=True, help="Random candidates to measure.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/demo"),
    show_default=True,
    help="Store that keeps the measurements.",
)
@click.option("--seed", default=0, show_default=True, help="Of the random candidates.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(trials: int, out: Path, seed: int, as_json: bool) -> None:
    """Measure random programs of a 3x3 convolution; print the best against the naive program."""
    if trials < 1:
        raise click.UsageError(f"--trials must be at least 1, but got {trials}")
    from tensorese.cli.progress import Trials
    from tensorese.measure.demo import conv2d_demo

    with Trials(trials + 1, "measuring a 3x3 conv2d, 56x56x64") as progress:
        result = conv2d_demo(out, trials=trials, seed=seed, on_result=progress.update)
    if as_json:
        click.echo(json.dumps(result))
        return
    click.echo(f"naive    {result['naive_ms']:8.2f} ms  {result['naive_gflops']:7.1f} GFLOP/s")
    click.echo(f"best     {result['best_ms']:8.2f} ms  {result['best_gflops']:7.1f} GFLOP/s")
    click.echo(f"speed-up {result['speed_up']:8.1f} x   outputs verified, {result['statuses']}")
    click.echo(f"{result['seconds']:.0f} s; every measurement is in {out} (tensorese data info)")
