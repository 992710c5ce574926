"""`tensorese train`: stores in, a model folder out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from tensorese.errors import did_you_mean
from tensorese.training.recipes import presets, recipe_class, trainable

_PATH = click.Path(path_type=Path)


def parse_settings(pairs: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise click.UsageError(f"--set takes key=value, but got {pair!r}")
        settings[key.strip()] = value.strip()
    return settings


def read_networks(path: Path) -> dict[str, list[str]]:
    try:
        networks = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--networks takes a JSON file, but {path} is none") from error
    lists = networks.values() if isinstance(networks, dict) else [None]
    if not all(isinstance(names, list) for names in lists):
        raise click.UsageError(
            f'--networks holds {{"network": ["workload id", ...]}}, but {path} does not'
        )
    return dict(networks)


def pick_device(name: str) -> str:
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise click.UsageError(f"--device {name} needs a CUDA device, but torch sees none")
    return name


def _say(entry: dict[str, Any]) -> None:
    words = [f"epoch {entry['epoch']}", f"loss {entry['loss']:.4f}"]
    if "top1" in entry:
        words.append(f"validation top-1 {entry['top1']:.3f} top-5 {entry['top5']:.3f}")
    words.append(f"{entry['seconds_left']:.0f} s left")
    click.echo(", ".join(words), err=True)


@click.command()
@click.argument("kind", type=click.Choice(trainable()))
@click.option("--data", "stores", multiple=True, required=True, type=_PATH, help="Record store.")
@click.option("--corpus", "corpora", multiple=True, type=_PATH, help="tlm: unmeasured programs.")
@click.option("--platform", "platforms", multiple=True, help="Only these; tlp takes one.")
@click.option(
    "--features",
    type=click.Choice(["language", "both"]),
    help="tlp, mtl-tlp: the schedule alone (default), or hardware features beside it.",
)
@click.option(
    "--split",
    default="by-workload",
    show_default=True,
    help="by-workload, by-operator, by-network.",
)
@click.option("--networks", type=_PATH, help="JSON file: workload ids by network.")
@click.option("--hold-out", default="", help="The network that stays unseen (by-network).")
@click.option("--fold", default=0, show_default=True, type=click.IntRange(-1, 4))
@click.option(
    "--preset",
    default="default",
    help="tlp: paper; ensemble: ship; tlm: small, paper; atformer: 1L, M.",
)
@click.option("--out", required=True, type=_PATH, help="Folder the model goes to.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda.")
@click.option("--init", type=_PATH, help="Go on from this model's weights; networks only.")
@click.option("--freeze", help="With --init, what stays: none (default), encoder, all-but-head.")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in --out.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one setting.")
def train(
    kind: str,
    stores: tuple[Path, ...],
    corpora: tuple[Path, ...],
    platforms: tuple[str, ...],
    features: str | None,
    split: str,
    networks: Path | None,
    hold_out: str,
    fold: int,
    preset: str,
    out: Path,
    device: str,
    init: Path | None,
    freeze: str | None,
    resume: bool,
    settings: tuple[str, ...],
) -> None:
    """Train a cost model on measured programs (fold --fold of 5 stays unseen; -1: none)."""
    wanted = parse_settings(settings)
    if preset not in presets(kind):
        raise click.UsageError(
            f"--preset of {kind} is one of {', '.join(presets(kind))}, but got {preset!r}"
            f"{did_you_mean(preset, presets(kind))}"
        )
    if features is not None:
        if not kind.endswith("tlp"):
            raise click.UsageError(f"--features is for tlp and mtl-tlp, but {kind} reads its own")
        wanted = {"features": features, **wanted}
    if corpora and kind != "tlm":
        raise click.UsageError(f"--corpus is for tlm, but {kind} learns from measurements alone")
    if freeze is not None and init is None:
        raise click.UsageError("--freeze is for a run that goes on from a model; name it by --init")
    from tensorese.cli.progress import lowering_told
    from tensorese.records.store import Store
    from tensorese.training.distributed import launched
    from tensorese.training.recipes.base import DataSelection, apply_settings, train_model
    from tensorese.training.transfer import read_start

    selection = DataSelection(
        platforms=platforms,
        split=split,
        fold=fold,
        networks=read_networks(networks) if networks else {},
        held_out=hold_out,
    )
    recipe = recipe_class(kind).named(kind, preset, selection)
    recipe = apply_settings(recipe, wanted)
    start = read_start(init, freeze or "none", kind, recipe.freezes) if init else None
    opened = [Store.open(path) for path in stores]
    with launched() as place, lowering_told() as listener:
        outcome = train_model(
            recipe,
            opened,
            out,
            corpora=[Store.open(path) for path in corpora],
            device=pick_device(device),
            command=" ".join(["tensorese", *sys.argv[1:]]),
            resume=resume,
            start=start,
            progress=_say if place.rank == 0 else None,
            listener=listener,
            wrap=place.wrap,
            rank=place.rank,
            world=place.world,
        )
    if place.rank:
        return
    for note in outcome.notes:
        click.echo(note, err=True)
    for name, value in outcome.metrics.items():
        click.echo(f"{name}: {value:.4f}" if isinstance(value, float) else f"{name}: {value}")
    asked = f"--proposer tlm:{outcome.folder}" if kind == "tlm" else f"--model {outcome.folder}"
    click.echo(f"model in {outcome.folder}; tensorese tune {asked}")
