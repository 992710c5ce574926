"""`tensorese collect`: random programs of many tasks, measured here into a dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tensorese.collect.tasklist import ListedTask

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--tasks", "source", required=True, help="zoo:train, zoo:test, zoo:NAME, list, store")
@click.option("--target", default="host", show_default=True, help="host, cuda[:DEVICE] or JSON.")
@click.option("--platform", "name", default="", help="Name of this hardware; derived if absent.")
@click.option("--minutes", default=10.0, show_default=True, help="How long to measure.")
@click.option("--out", type=_PATH, help="Store to add to; made when missing.")
@click.option("--programs", type=_PATH, help="Store whose programs come first (a model's, say).")
@click.option("--split", default="all", type=click.Choice(["all", "train", "test"]))
@click.option("--most-tasks", default=0, help="Only so many of the tasks; 0 for all.")
@click.option("--per-task", default=0, help="Programs a task, those of the store counted; 0: any.")
@click.option("--random-share", default=0.75, show_default=True, help="The rest are mutations.")
@click.option("--seed", default=0, help="Of the random programs.")
@click.option("--lanes", default=1, show_default=True, help="Programs timed side by side (CPU).")
@click.option("--stride", default=1, show_default=True, help="Cores a lane keeps to itself.")
@click.option("--beside", is_flag=True, help="Build on other cores while programs are timed.")
@click.option("--calibrate", is_flag=True, help="Choose lanes by trial: p90 noise under 5 %.")
@click.option("--again", default=0, help="Re-measure so many of --programs, alone, instead.")
@click.option("--verify", default="best", show_default=True, help="best, all or none.")
@click.option("--list", "listing", type=_PATH, help="Write the tasks to this file and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def collect(source: str, as_json: bool, **options: Any) -> None:
    """Sample programs of many tasks, measure them for --minutes, keep every result in --out.

    The same command again goes on where the store ends. Interrupted, nothing is lost.
    """
    from tensorese.targets import parse_target

    if options["listing"]:
        _write_list(source, options["listing"])
        return
    if options["out"] is None:
        raise click.UsageError("--out STORE must be given (or --list FILE to write the tasks)")
    target = parse_target(options["target"])
    _check_device(target)
    result = _collect(source, target, options, quiet=as_json)
    if as_json:
        click.echo(json.dumps(result))
        return
    counts = ", ".join(f"{n} {status}" for status, n in result["by_status"].items())
    click.echo(
        f"{result['platform']}: {result['measured']} programs in {result['seconds']:.0f} s "
        f"({result['programs_per_sec']:.1f}/s): {counts or 'nothing new'}; "
        f"{100 * result['rejected_share']:.2f}% rejected by TVM; store {result['store']}"
    )


def _collect(source: str, target: str, options: dict[str, Any], quiet: bool) -> dict[str, Any]:
    from tensorese.collect import session as sessions
    from tensorese.collect.collector import CollectConfig
    from tensorese.collect.farm import COLLECT_TIMING, Layout
    from tensorese.measure.config import FarmConfig
    from tensorese.records.store import Store
    from tensorese.targets import platform_of

    cuda = '"cuda"' in target
    config = CollectConfig(
        minutes=options["minutes"],
        per_task=options["per_task"],
        random_share=options["random_share"],
        seed=options["seed"],
    )
    session = sessions.Session(
        target=target,
        platform=platform_of(target, options["name"]),
        out=options["out"],
        layout=Layout(
            lanes=options["lanes"], stride=options["stride"], phases=not options["beside"]
        ),
        config=config,
        farm=FarmConfig(
            timing=COLLECT_TIMING,
            verify=options["verify"],
            build_timeout=20.0 if cuda else 8.0,
            run_timeout=8.0,
            run_batch=64,
        ),
    )
    tasks = _tasks(source, target, options["split"])
    if options["most_tasks"]:  # ids are hashes: the first of them are a random choice
        tasks = sorted(tasks, key=lambda task: task.workload.id)[: options["most_tasks"]]
    with Store.open(options["out"], create=True):
        pass  # a place that cannot be written is refused before an hour of measuring
    given: list[sessions.GivenProgram] = []
    if options["programs"]:
        with Store.open(options["programs"]) as programs:
            if options["again"]:
                session, given = sessions.again(session, programs, options["again"])
            else:
                given = sessions.programs_of(programs)
    if options["calibrate"]:
        from tensorese.collect.calibrate import calibrate

        session = calibrate(session, tasks, lambda text: click.echo(text, err=True))
    tally = sessions.collect(session, tasks, given, _Lines(session.platform.name).update)
    return sessions.summary(tally, session)


def _tasks(source: str, target: str, split: str) -> list[ListedTask]:
    from tensorese.collect.tasklist import load_tasks
    from tensorese.collect.zoo_tasks import zoo_part

    kind = str(json.loads(target)["kind"])
    if source.startswith("zoo:"):
        tasks = zoo_part(source.removeprefix("zoo:"), [target], _say)
    else:
        tasks = load_tasks(Path(source), kind)
    if split != "all":
        tasks = [task for task in tasks if (task.split == "test") == (split == "test")]
    if not tasks:
        raise click.UsageError(f"{source} has no {split} tasks for {kind} targets")
    return tasks


def _write_list(source: str, path: Path) -> None:
    """For CPU and CUDA targets alike: neither the core count nor the card is in a workload."""
    from tensorese.collect.tasklist import write_tasks
    from tensorese.collect.zoo_tasks import class_counts, zoo_part
    from tensorese.targets import parse_target

    if not source.startswith("zoo:"):
        raise click.UsageError(f"--list writes tasks of the zoo, but --tasks is {source!r}")
    targets = [parse_target("host", cores=1), parse_target("cuda:h200")]
    tasks = zoo_part(source.removeprefix("zoo:"), targets, _say)
    write_tasks(path, tasks)
    for kind in sorted({task.kind for task in tasks}):
        mine = [task for task in tasks if task.kind == kind]
        click.echo(f"{kind}: {len(mine)} tasks, {class_counts(mine)}")


def _check_device(target: str) -> None:
    from tensorese.errors import TargetError
    from tensorese.tvm_env import import_tvm

    kind = str(json.loads(target)["kind"])
    if kind != "llvm" and not import_tvm().device(kind, 0).exist:
        raise TargetError(
            f"collecting measures on this machine, but it has no {kind} device; "
            "run the command where the device is"
        )


def _say(spec: str) -> None:
    click.echo(f"extracting tasks of {spec}", err=True)


class _Lines:
    """A line every ten seconds: programs, rate, failures by class."""

    def __init__(self, label: str) -> None:
        import time

        self.clock = time.monotonic
        self.label = label
        self.said = self.clock()

    def update(self, tally: Any) -> None:
        if self.clock() - self.said < 10:
            return
        self.said = self.clock()
        bad = {s: n for s, n in tally.by_status.items() if s != "ok"}
        failures = ", ".join(f"{n} {status}" for status, n in bad.items())
        click.echo(
            f"{self.label}: {tally.measured} programs, {tally.rate:.1f}/s"
            f"{'; ' + failures if failures else ''}",
            err=True,
        )
