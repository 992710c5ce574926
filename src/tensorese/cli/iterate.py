"""`tensorese iterate`: rounds of a model that writes, is measured, and learns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tensorese.iterate.session import Iteration
    from tensorese.targets import Target

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--tasks", "source", required=True, help="zoo:train, zoo:test, zoo:NAME, list, store")
@click.option("--target", default="host", show_default=True, help="host, cuda[:DEVICE] or JSON.")
@click.option("--platform", "name", default="", help="Name of this hardware; derived if absent.")
@click.option("--model", default="auto", show_default=True, help="Of kind tlm: auto or DIR.")
@click.option("--rounds", default=8, show_default=True, help="At most so many.")
@click.option("--out", required=True, type=_PATH, help="Run folder; made when missing.")
@click.option(
    "--data", multiple=True, type=_PATH, help="Store of earlier records, learnt from too."
)
@click.option("--split", default="train", type=click.Choice(["all", "train", "test"]))
@click.option("--per-task", default=16, show_default=True, help="Programs of a task in a round.")
@click.option("--task-share", default=0.25, show_default=True, help="Of the tasks, in a round.")
@click.option("--trials", type=int, default=None, help="Programs to measure, in total.")
@click.option("--minutes", type=float, default=None, help="Wall-clock limit.")
@click.option("--least-gain", default=0.01, show_default=True, help="A round below it is the last.")
@click.option("--seed", default=0, show_default=True, help="Of writing and learning.")
@click.option("--device", default="auto", show_default=True, help="To learn on: auto, cpu, cuda.")
@click.option("--beside", is_flag=True, help="Learn and build on other cores than are timed.")
@click.option("--rpc-tracker", default="", help="HOST:PORT of a TVM tracker: measure there.")
@click.option("--rpc-key", default="", help="Key of the tracker's devices.")
@click.option("--ray", default="", help="HOST:PORT of a Ray cluster, auto, or local.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As `train tlm` has.")
@click.option("--json", "as_json", is_flag=True, help="Events as JSON, one a line.")
def iterate(source: str, target: str, as_json: bool, **options: Any) -> int:
    """Let a language model write programs of tasks, measure them, and let it learn, in rounds.

    While one batch is measured, a process of its own fine-tunes the model on those before and
    writes the next. The last model is OUT/model, the measurements are OUT/store, the curve is
    OUT/report.html. Limits are totals: the same command goes on where it stopped. Ctrl-C finishes
    the current measurement (exit code 130).
    """
    from tensorese.cli.collect import check_device, listed_tasks, remote_place
    from tensorese.cli.iterate_view import JsonView, LineView
    from tensorese.cli.tune_view import process_start
    from tensorese.iterate import session
    from tensorese.targets import Target

    parsed = Target.parse(target)
    job = _job(parsed, options)
    place = remote_place(options)
    if place is None:
        check_device(parsed)
    session.base_of(job.model, job.session.platform, job.data)  # before tasks are extracted
    tasks = listed_tasks(source, parsed, options["split"])
    view = JsonView() if as_json else LineView()
    result = session.iterate(job, tasks, place=place, view=view, started=process_start())
    return 130 if result["state"] == "interrupted" else 0


def _job(target: Target, options: dict[str, Any]) -> Iteration:
    from tensorese.cli.train import parse_settings
    from tensorese.collect.farm import Layout, collecting_on
    from tensorese.collect.session import Session
    from tensorese.iterate.config import IterateConfig
    from tensorese.iterate.folder import STORE
    from tensorese.iterate.session import Iteration

    names = ("rounds", "trials", "minutes", "per_task", "task_share", "least_gain", "seed")
    remote = options["rpc_tracker"] or options["rpc_key"] or options["ray"]
    return Iteration(
        out=options["out"],
        session=Session(
            target=target,
            platform=target.platform(options["name"]),
            out=options["out"] / STORE,
            layout=Layout(phases=not options["beside"]),
            farm=collecting_on(target),
            planners=1,
        ),
        model=options["model"],
        data=options["data"],
        settings=parse_settings(options["settings"]),
        config=IterateConfig(**{name: options[name] for name in names}),
        # A device that times programs must not learn meanwhile.
        device="cpu" if options["device"] == "auto" and not (target.is_cpu or remote)
        else options["device"],
    )  # fmt: skip
