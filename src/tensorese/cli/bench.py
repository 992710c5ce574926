"""`tensorese bench`: a run's library against torch, onnxruntime, OpenVINO and untuned TVM."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--rounds", default=7, show_default=True, help="Turns over all systems.")
@click.option("--unpacked", is_flag=True, help="Also without weights packed at compile time.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def bench(run: Path, rounds: int, unpacked: bool, as_json: bool) -> None:
    """Time the compiled library of RUN and its rivals, interleaved, on the same cores."""
    from tensorese.cli.compile import lines_of
    from tensorese.cli.quiet import libraries_logged
    from tensorese.deploy import bench_run
    from tensorese.deploy.compile import Timing

    def say(step: str) -> None:
        click.echo(f"{step} ...", err=True)

    with libraries_logged() as log:
        result = bench_run(run, on_step=say, timing=Timing(rounds=rounds), unpacked=unpacked)
        log.keep(run)
    if as_json:
        import json

        click.echo(json.dumps(result))
        return
    for line in lines_of(result):
        click.echo(line)
