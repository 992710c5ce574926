"""`tensorese onboard`: fifteen minutes of measuring, and the models know this platform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tensorese.targets import Target

_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--target", default="host", show_default=True, help="host, cuda[:DEVICE] or JSON.")
@click.option("--minutes", default=15.0, show_default=True, help="How long to measure.")
@click.option("--tasks", "source", default="", help="Task list, store or zoo:NAME; own if absent.")
@click.option("--platform", "name", default="", help="Name of this hardware; derived if absent.")
@click.option("--out", type=_PATH, default=None, help="Folder of the model; the user's if absent.")
@click.option("--start", type=_PATH, default=None, help="Model to start from; nearest if absent.")
@click.option("--seed", default=0, help="Of the probes.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def onboard(
    target: str,
    minutes: float,
    source: str,
    name: str,
    out: Path | None,
    start: Path | None,
    seed: int,
    as_json: bool,
) -> int:
    """Measure probe programs here, add a head to the nearest model, keep it for --model auto.

    The same command again goes on with its store. Ctrl-C ends the measuring, not the learning.
    """
    from tensorese.cli.collect_view import Lines
    from tensorese.models.catalog import user_models
    from tensorese.onboard import session
    from tensorese.targets import Target

    if minutes <= 0:
        raise click.UsageError(f"--minutes must be positive, but got {minutes:g}")
    if source and not source.startswith("zoo:") and not Path(source).exists():
        raise click.UsageError(f"--tasks is a list, store or zoo:NAME, but {source} does not exist")
    start_model = None if start is None else session.start_at(start)
    parsed = Target.parse(target)
    platform = parsed.platform(name)
    choice = _nearest(platform) if start_model is None else start_model
    folder = out or user_models() / platform.name
    tasks = session.pick_tasks(_tasks(source, parsed))
    job = session.Onboarding(
        target=parsed, platform=platform, minutes=minutes, out=folder, choice=choice, seed=seed
    )
    say = _quiet if as_json else _say
    say(f"{platform.name}: starting from {choice.folder.name}, {choice.why}")
    watch = _unwatched if as_json else Lines(platform.name).update
    whole = session.measure_probes(job, _session(job), tasks, say, watch)
    from tensorese.training.trees import can_grow  # torch: after measuring, which goes without

    if can_grow():
        say("learning from what was measured: networks and trees")
    else:
        say(
            "learning from what was measured: networks alone, since trees need LightGBM; "
            "pip install 'tensorese[baselines]' and the same command again learn more"
        )
    adapted = session.learn(job)
    _print(adapted, folder, as_json)
    return 0 if whole else 130


def _say(text: str) -> None:
    click.echo(text, err=True)


def _quiet(text: str) -> None:
    """JSON alone goes out."""


def _unwatched(tally: Any) -> None:
    """As `_quiet`."""


def _nearest(platform: Any) -> Any:
    from tensorese.models.catalog import SHIPPED, choose
    from tensorese.onboard.adapt import OnboardError

    choice = choose(platform, [SHIPPED])
    if choice is None:
        raise OnboardError(
            f"a new platform starts from a trained one of its kind, but none is shipped for "
            f"{platform.name}; name a model with --start"
        )
    return choice


def _tasks(source: str, target: Target) -> list[Any]:
    from tensorese.collect.tasklist import load_tasks
    from tensorese.models.catalog import SHIPPED

    kind = target.kind
    if source.startswith("zoo:"):
        from tensorese.collect.zoo_tasks import zoo_part

        return zoo_part(source.removeprefix("zoo:"), [target], _say)
    return load_tasks(Path(source) if source else SHIPPED / "tasks.parquet", kind)


def _session(job: Any) -> Any:
    from tensorese.cli.collect_view import say
    from tensorese.collect.farm import collecting_on
    from tensorese.collect.session import Session
    from tensorese.onboard.session import STORE

    return Session(
        target=job.target,
        platform=job.platform,
        out=job.out / STORE,
        farm=collecting_on(job.target),
        say=say,
    )


def _print(adapted: Any, folder: Path, as_json: bool) -> None:
    gain = adapted.gain
    if as_json:
        result = {
            "model": str(folder),
            "variant": adapted.variant,
            "trees": str(adapted.votes),
            "tasks": gain.tasks,
            "before": gain.before,
            "after": gain.after,
            "random": gain.random,
        }
        click.echo(json.dumps(result))
        return
    for line in gain.lines():
        click.echo(line)
    click.echo(f"model in {folder}; tensorese tune --model auto finds it there by the platform")
