"""`tensorese collect`: random programs of many tasks, measured here or on a fleet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tensorese.collect.fleet.ray_cluster import RayConfig
    from tensorese.collect.remote import OverRay, OverRpc
    from tensorese.collect.session import NamedProgram, Session
    from tensorese.collect.tasklist import ListedTask
    from tensorese.measure.rpc_config import FleetConfig
    from tensorese.targets import Target

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--tasks", "source", required=True, help="zoo:train, zoo:test, zoo:NAME, list, store")
@click.option("--target", default="host", show_default=True, help="host, cuda[:DEVICE] or JSON.")
@click.option("--platform", "name", default="", help="Name of this hardware; derived if absent.")
@click.option("--minutes", default=10.0, show_default=True, help="How long to measure.")
@click.option("--out", type=_PATH, help="Store to add to; made when missing.")
@click.option("--programs", type=_PATH, help="Store whose programs come first, the unmeasured too.")
@click.option("--only-programs", is_flag=True, help="Nothing beyond those of --programs.")
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
@click.option(
    "--group",
    default=16,
    show_default=True,
    type=click.IntRange(1),
    help="Programs a task with --again.",
)
@click.option("--verify", default="best", show_default=True, help="best, all or none.")
@click.option(
    "--rpc-tracker", "--rpc", default="", help="HOST:PORT of a TVM tracker: measure there."
)
@click.option("--rpc-key", default="", help="Key of the tracker's devices.")
@click.option("--ray", default="", help="HOST:PORT of a Ray cluster, auto, or local.")
@click.option("--share", is_flag=True, help="Beside others who time programs on these cores.")
@click.option("--list", "listing", type=_PATH, help="Write the tasks to this file and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def collect(source: str, as_json: bool, **options: Any) -> None:
    """Sample programs of many tasks, measure them for --minutes, keep every result in --out.

    The same command again goes on where the store ends. Interrupted, nothing is lost.

    With --rpc-tracker or --rpc-key (and TVM_TRACKER_HOST, _PORT, _KEY for what is not given)
    programs are built here and timed on the tracker's devices; with --ray every node of a cluster
    builds and times. Name the target and the platform then: they are not this machine's.
    """
    from tensorese.cli.collect_view import summary_lines
    from tensorese.targets import Target

    if options["listing"]:
        _write_list(source, options["listing"])
        return
    if options["out"] is None:
        raise click.UsageError("--out STORE must be given (or --list FILE to write the tasks)")
    if options["again"] and options["programs"] is None:
        raise click.UsageError(
            f"--again {options['again']} measures programs of a store once more, but none is "
            "given; add --programs STORE"
        )
    if options["only_programs"] and options["programs"] is None:
        raise click.UsageError(
            "--only-programs measures what a store names, but none is given; add --programs STORE"
        )
    place = remote_place(options)
    target = Target.parse(options["target"])
    if place is None:
        check_device(target)
    result = _collect(source, target, options, place)
    if as_json:
        click.echo(json.dumps(result))
        return
    for line in summary_lines(result):
        click.echo(line)


def remote_place(options: dict[str, Any]) -> OverRpc | OverRay | None:
    """Where to measure: None for this machine. Checked before an hour of extracting tasks."""
    fleet = fleet_named(options["rpc_tracker"], options["rpc_key"], options["ray"])
    if fleet is None:
        return None
    way = "--ray" if options["ray"] else "--rpc-tracker"
    local = {"lanes": 1, "stride": 1, "calibrate": False}
    local |= {} if options["ray"] else {"beside": False}
    for name, default in local.items():
        if options.get(name, default) != default:
            raise click.UsageError(
                f"--{name} arranges the lanes of this machine, but {way} measures elsewhere, "
                "one program at a time on each host; leave it out"
            )
    from tensorese.cli.collect_view import say
    from tensorese.collect.fleet.ray_cluster import RayConfig, check_reachable
    from tensorese.collect.remote import OverRay, OverRpc

    if not isinstance(fleet, RayConfig):
        return OverRpc(fleet=fleet)
    check_reachable(fleet)
    return OverRay(cluster=fleet, say=say)


def fleet_named(tracker: str, key: str, ray: str) -> FleetConfig | RayConfig | None:
    """What --rpc-tracker and --rpc-key, or --ray, name."""
    if ray and (tracker or key):
        raise click.UsageError("--ray and --rpc-tracker exclude each other; give one of them")
    if ray:
        from tensorese.collect.fleet.ray_cluster import RayConfig

        return RayConfig(address=ray)
    return tracker_named(tracker, key)


def tracker_named(tracker: str, key: str) -> FleetConfig | None:
    if not tracker and not key:
        return None
    from tensorese.measure.rpc_config import FleetConfig

    host, _, port = tracker.rpartition(":")
    return FleetConfig.resolve(host, port, key)


def _collect(
    source: str, target: Target, options: dict[str, Any], place: OverRpc | OverRay | None
) -> dict[str, Any]:
    from tensorese.cli.collect_view import Lines, say
    from tensorese.collect import session as sessions
    from tensorese.records.store import Store

    session = _session(target, options)
    tasks = listed_tasks(source, target, options["split"])
    if options["most_tasks"]:  # ids are hashes: the first of them are a random choice
        tasks = sorted(tasks, key=lambda task: task.workload.id)[: options["most_tasks"]]
    with Store.open(options["out"], create=True):
        pass  # a place that cannot be written is refused before an hour of measuring
    session, programs = _programs(session, options, tasks)
    if options["calibrate"]:
        from tensorese.collect.calibrate import calibrate

        session = calibrate(session, tasks, say)
    lines = Lines(session.platform.name, fleet=place is not None)
    tally = sessions.collect(session, tasks, programs, lines.update, place)
    result = sessions.summary(tally, session)
    if place is not None:
        result["layout"] = place.name
    if options["programs"] and options["again"]:
        result["again"] = _differences(options["programs"], options["out"], result["platform"])
    return result


def _session(target: Target, options: dict[str, Any]) -> Session:
    from tensorese.cli.collect_view import say
    from tensorese.collect.collector import CollectConfig
    from tensorese.collect.farm import Layout, collecting_on
    from tensorese.collect.session import Session

    return Session(
        target=target,
        platform=target.platform(options["name"]),
        out=options["out"],
        layout=Layout(
            lanes=options["lanes"], stride=options["stride"], phases=not options["beside"]
        ),
        config=CollectConfig(
            minutes=options["minutes"],
            per_task=options["per_task"],
            random_share=options["random_share"],
            seed=options["seed"],
            only_named=options["only_programs"],
        ),
        farm=collecting_on(target, verify=options["verify"]),
        share=options["share"],
        say=say,
    )


def _programs(
    session: Session, options: dict[str, Any], tasks: Sequence[ListedTask]
) -> tuple[Session, list[NamedProgram]]:
    from tensorese.collect import session as sessions
    from tensorese.records.store import Store

    if not options["programs"]:
        return session, []
    with Store.open(options["programs"]) as programs:
        if options["again"]:
            mine = {task.workload.id for task in tasks}
            return sessions.again(session, programs, options["again"], options["group"], mine)
        return session, sessions.programs_of(programs)


def _differences(first: Path, second: Path, platform: str) -> dict[str, dict[str, float]]:
    """Of the times in the first store from those just taken, by the host that took them."""
    from tensorese.evaluation.noise import differences_by_host
    from tensorese.records.store import Store

    with Store.open(first) as label, Store.open(second) as again:
        if platform not in again.platforms():
            return {}
        differences = differences_by_host(label, again, platform)
    return {host: off.to_dict() for host, off in differences.items()}


def listed_tasks(source: str, target: Target, split: str) -> list[ListedTask]:
    """What --tasks names, for the target's kind."""
    from tensorese.collect.tasklist import load_tasks
    from tensorese.collect.zoo_tasks import zoo_part

    kind = target.kind
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
    from tensorese.targets import Target

    if not source.startswith("zoo:"):
        raise click.UsageError(f"--list writes tasks of the zoo, but --tasks is {source!r}")
    targets = [Target.parse("host", cores=1), Target.parse("cuda:h200")]
    tasks = zoo_part(source.removeprefix("zoo:"), targets, _say)
    write_tasks(path, tasks)
    for kind in sorted({task.kind for task in tasks}):
        mine = [task for task in tasks if task.kind == kind]
        click.echo(f"{kind}: {len(mine)} tasks, {class_counts(mine)}")


def check_device(target: Target) -> None:
    from tensorese.errors import TargetError
    from tensorese.tvm_env import import_tvm

    kind = target.kind
    if kind != "llvm" and not import_tvm().device(kind, 0).exist:
        raise TargetError(
            f"programs are measured on this machine, but it has no {kind} device; "
            "run the command where the device is"
        )


def _say(spec: str) -> None:
    click.echo(f"extracting tasks of {spec}", err=True)
