"""`tensorese demo`: the main job on a real network, small enough for a first look."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--network", default="zoo:resnet18", show_default=True, help="What to tune.")
@click.option("--minutes", default=3.0, show_default=True, help="Wall-clock limit.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/demo"),
    show_default=True,
    help="Run folder.",
)
@click.option("--seed", default=0, show_default=True, help="Of the search.")
@click.option("--json", "as_json", is_flag=True, help="Events as JSON, one a line.")
def demo(network: str, minutes: float, out: Path, seed: int, as_json: bool) -> int:
    """Tune a network on this CPU with a shipped model; print tuned, untuned and torch latency.

    It is `tensorese tune NETWORK --minutes M --out RUN --no-reuse` and nothing more. A second
    demo finds its time used up, and builds and times the library again.
    """
    from tensorese import api
    from tensorese.cli.quiet import libraries_logged
    from tensorese.cli.tune_view import process_start, view_for

    with libraries_logged() as log, view_for(as_json=as_json) as view:
        run = api.tune(
            network,
            minutes=minutes,
            ranker="auto",
            out=out,
            callbacks=[view],
            seed=seed,
            reuse=False,
            started=process_start(),
        )
        log.keep(run.path)
    view.summary(run)
    return 130 if run.state == "interrupted" else 0
