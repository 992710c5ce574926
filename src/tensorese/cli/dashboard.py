"""`tensorese dashboard`: a run's report, live in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tensorese.report.live import Source


@click.command()
@click.argument("run", type=click.Path(path_type=Path), required=False)
@click.option("--demo", is_flag=True, help="Replay a stored run in a minute.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="Of 127.0.0.1; 0 takes a free one.",
)
def dashboard(run: Path | None, demo: bool, port: int) -> None:
    """Serve the report of RUN, which may be going on, on 127.0.0.1 until Ctrl-C.

    The page asks for news by itself, and calls nothing but this server. From another machine:
    `ssh -L 8765:127.0.0.1:8765 HOST`.
    """
    from tensorese.report.live import Dashboard

    with Dashboard(_source(run, demo), port) as server:
        click.echo(f"{server.url} shows {'a stored run' if demo else run}; Ctrl-C ends it")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            click.echo()


def _source(run: Path | None, demo: bool) -> Source:
    from tensorese.report.live import RunSource
    from tensorese.report.replay import Replay, stored

    if demo == (run is not None):
        raise click.UsageError("name a run folder, or say --demo: one of both")
    return Replay(stored()) if run is None else RunSource(run)
