"""Which trained model a platform gets: its own, or that of the nearest platform of its kind.

Models come with the package (`models/shipped/NAME`) or from `tensorese onboard`, which keeps
them in the user's folder; the user's come first.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorese.features.base import feature_set, feature_sets
from tensorese.models.base import CONFIG, ModelError, read_config
from tensorese.records.nouns import Platform

SHIPPED = Path(__file__).parent / "shipped"
_WRITERS = ("tlm",)
"""Kinds that write programs; they are no ranker's choice."""
_FAR = 1000.0  # another make of processor is further than any number of cores
_WIDE = (
    *("skylake-avx512", "cascadelake", "cooperlake", "cannonlake", "icelake", "tigerlake"),
    *("rocketlake", "sapphirerapids", "emeraldrapids", "graniterapids", "diamondrapids"),
    *("znver4", "znver5", "znver6", "x86-64-v4", "knl", "knm"),
)
"""LLVM's names, or beginnings of them, of CPUs whose vectors have 512 bits."""


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """A model folder, which of its heads to ask, and why."""

    folder: Path
    head: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A head of a model that is there to be chosen."""

    folder: Path
    kind: str
    head: str
    target: dict[str, Any]
    heads: int
    """Of the whole model: one trained on several platforms has seen more."""
    lowers: bool
    """Whether it reads lowered programs."""
    place: int
    """Of the folders that were searched: the user's come before what ships."""


def user_models() -> Path:
    """`$XDG_DATA_HOME/tensorese/models`, or below `~/.local/share`."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "tensorese" / "models"


def places() -> tuple[Path, ...]:
    return (user_models(), SHIPPED)


def kept_models(
    folders: Sequence[Path] | None = None, damaged: dict[Path, str] | None = None
) -> Iterator[Kept]:
    """Every head of the folders whose config can be read; the others are added to `damaged`."""
    for number, place in enumerate(places() if folders is None else folders):
        for path in sorted(place.glob(f"*/{CONFIG}")):
            try:
                yield from _heads(path.parent, number)
            except (ModelError, KeyError, TypeError, AttributeError, ValueError) as error:
                if damaged is not None:
                    damaged[path.parent] = str(error)


def _heads(folder: Path, place: int) -> list[Kept]:
    config = read_config(folder)
    targets = config["card"].get("targets", {})
    return [
        Kept(
            folder=folder,
            kind=config["kind"],
            head=head,
            target=target_of(head, targets.get(head, "{}")),
            heads=len(config["platforms"]),
            lowers=_lowers(config["features"]["name"]),
            place=place,
        )
        for head in config["platforms"]
    ]


def _lowers(name: str) -> bool:
    """Of a set that this program does not know loading says what is wrong."""
    return name in feature_sets() and feature_set(name).lowers


def choose(
    platform: Platform,
    folders: Sequence[Path] | None = None,
    *,
    kinds: Sequence[str] = (),
    damaged: dict[Path, str] | None = None,
    lowered: bool = False,
) -> ModelChoice | None:
    """The platform's own model, else the nearest head of the same kind of target, else None.

    Models that write programs are chosen only where their kind is named, those that read lowered
    ones only where somebody lowers; folders in `damaged`,
    with what is wrong with them, never. More are added to it.
    """
    damaged = {} if damaged is None else damaged
    kept = [k for k in kept_models(folders, damaged) if k.folder not in damaged]
    kept = [k for k in kept if lowered or not k.lowers]
    candidates = [k for k in kept if (k.kind in kinds if kinds else k.kind not in _WRITERS)]
    own = [k for k in candidates if k.head == platform.name]
    if own:
        # Its own folder first: a model of several platforms is for those that have none.
        best = min(own, key=lambda k: (k.place, k.folder.name != platform.name, k.heads))
        return ModelChoice(folder=best.folder, head=best.head, why=f"trained on {platform.name}")
    wanted = target_of(platform.name, platform.target)
    near = [(gap, k) for k in candidates if (gap := distance(wanted, k.target)) < math.inf]
    if not near:
        return None
    gap, best = min(near, key=lambda pair: (pair[0], -pair[1].heads, pair[1].folder.name))
    shared = f", one of {best.heads} platforms of its model" if best.heads > 1 else ""
    why = f"no model knows {platform.name}; {best.head} is the nearest{shared}"
    return ModelChoice(folder=best.folder, head=best.head, why=why)


def distance(wanted: dict[str, Any], known: dict[str, Any]) -> float:
    """Infinite between kinds; on a CPU doublings of cores, on a GPU steps of architecture."""
    if not wanted.get("kind") or wanted.get("kind") != known.get("kind"):
        return math.inf
    if wanted["kind"] == "llvm":
        cores = [max(1, int(target.get("num-cores", 1))) for target in (wanted, known)]
        makes = [str(target.get("mcpu", "")) for target in (wanted, known)]
        return abs(math.log2(cores[0] / cores[1])) + _FAR * _unlike(*makes)
    steps = [_number(str(target.get("arch", ""))) for target in (wanted, known)]
    return abs(steps[0] - steps[1])


def _unlike(one: str, other: str) -> float:
    """0 for the same CPU, half for another of its line (znver2, znver3), 1 for any other.

    Twice as wide vectors, and twice as many of them, change which programs are fast more than the
    maker does: that alone counts 2.
    """
    if one == other:
        return 0.0
    alike = one.rstrip("0123456789") == other.rstrip("0123456789")
    return (0.5 if alike else 1.0) + 2.0 * (one.startswith(_WIDE) != other.startswith(_WIDE))


def _number(arch: str) -> float:
    digits = re.search(r"\d+", arch)
    return float(digits.group()) if digits else 0.0


def target_of(name: str, text: str) -> dict[str, Any]:
    """The target, or what the platform's name implies: `emeraldrapids-2c`, `cuda-sm_90`."""
    try:
        target = json.loads(text)
    except ValueError:
        target = {}
    if isinstance(target, dict) and target.get("kind"):
        return target
    cpu = re.fullmatch(r"(.+)-(\d+)c", name)
    if cpu:
        return {"kind": "llvm", "mcpu": cpu.group(1), "num-cores": int(cpu.group(2))}
    gpu = re.fullmatch(r"(cuda|rocm)-(.+)", name)
    return {"kind": gpu.group(1), "arch": gpu.group(2)} if gpu else {}
