"""`tensorese tune`: from a model to a faster, verified library."""

from __future__ import annotations

from pathlib import Path

import click

from tensorese.cli.completion import model_files
from tensorese.cli.shape_options import fixed_by, shape_options

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("model", shell_complete=model_files)
@click.option("--target", default="host", show_default=True, help="host, cuda or JSON.")
@click.option("--trials", type=int, default=None, help="Programs to measure; 0 for none.")
@click.option("--minutes", type=float, default=None, help="Wall-clock limit, everything included.")
@click.option("--model", "ranker", default="auto", show_default=True, help="auto, none or DIR.")
@click.option(
    "--proposer",
    default="evolution",
    show_default=True,
    help="Or annealing, random; tlm, portfolio (a language model writes; tlm:DIR: your own).",
)
@click.option("--out", type=_PATH, default=None, help="Run folder; runs/NAME if absent.")
@click.option("--tasks", multiple=True, help="Only these: glob on name or operator, or id.")
@click.option("--early-stopping", default=0, help="End a task after N trials without gain.")
@click.option("--warm", multiple=True, type=_PATH, help="Earlier run, store or database.")
@click.option("--platform", default="", help="Name of this hardware; derived if absent.")
@click.option("--seed", default=0, show_default=True, help="Of the search.")
@click.option("--inputs", type=_PATH, default=None, help="A .npz to verify on, by input name.")
@click.option("--no-prepack", is_flag=True, help="Leave weights in the network's own order.")
@click.option("--no-winograd", is_flag=True, help="Compute every convolution directly (CPUs).")
@click.option("--no-attention", is_flag=True, help="Attention operator by operator (CPUs).")
@click.option(
    "--cache",
    type=click.Choice(["rotated", "hot"]),
    default="rotated",
    show_default=True,
    help="Weights as a network finds them, or in the near caches (CPUs).",
)
@click.option("--no-compile", is_flag=True, help="Measure only; tensorese compile RUN later.")
@click.option("--share", is_flag=True, help="Beside others who time programs on these cores.")
@click.option("--no-reuse", is_flag=True, help="As if no run had been before; tell none to come.")
@click.option("--rpc-tracker", default="", help="HOST:PORT of a TVM tracker: measure there.")
@click.option("--rpc-key", default="", help="Key of the tracker's devices.")
@click.option("--ray", default="", help="HOST:PORT of a Ray cluster, auto, or local.")
@click.option("--json", "as_json", is_flag=True, help="Events as JSON, one a line.")
@shape_options
def tune(
    model: str,
    target: str,
    trials: int | None,
    minutes: float | None,
    ranker: str,
    proposer: str,
    out: Path | None,
    tasks: tuple[str, ...],
    early_stopping: int,
    warm: tuple[Path, ...],
    platform: str,
    seed: int,
    inputs: Path | None,
    no_prepack: bool,
    no_winograd: bool,
    no_attention: bool,
    cache: str,
    no_compile: bool,
    share: bool,
    no_reuse: bool,
    rpc_tracker: str,
    rpc_key: str,
    ray: str,
    as_json: bool,
    shape: tuple[str, ...],
    dim: tuple[str, ...],
    value: tuple[str, ...],
) -> int:
    """Tune MODEL: a .onnx or .pt2 file, or zoo:NAME[@shape]. Ends with a library and a report.

    With --trials 0 a model chooses every program: a library in seconds, for any target.
    --trials and --minutes are totals: the same command again goes on where it stopped, and does
    nothing once they are used up; what earlier runs of yours spent on the same tasks counts, and
    their best programs are measured first. With neither, it ends after 10 minutes. Ctrl-C finishes
    the current measurement and builds the best so far (exit code 130).

    With --rpc-tracker or --rpc-key (and TVM_TRACKER_HOST, _PORT, _KEY for what is not given)
    programs are built here and timed on the tracker's devices; with --ray every node of a cluster
    builds and times. Name the target and the platform then: they are not this machine's.
    """
    from tensorese import api
    from tensorese.cli.collect import fleet_named
    from tensorese.cli.quiet import libraries_logged
    from tensorese.cli.tune_view import process_start, view_for

    with libraries_logged() as log, view_for(as_json=as_json) as view:
        run = api.tune(
            model,
            inputs,
            target=target,
            trials=trials,
            minutes=minutes,
            ranker=ranker,
            proposer=proposer,
            out=out,
            tasks=tasks,
            early_stopping=early_stopping,
            warm=warm,
            platform=platform,
            callbacks=[view],
            seed=seed,
            prepack=not no_prepack,
            winograd=not no_winograd,
            attention=not no_attention,
            cache=cache,
            compile=not no_compile,
            share=share,
            reuse=not no_reuse,
            fleet=fleet_named(rpc_tracker, rpc_key, ray),
            started=process_start(),
            **fixed_by(shape, dim, value),
        )
        log.keep(run.path)
    view.summary(run)
    return 130 if run.state == "interrupted" else 0
