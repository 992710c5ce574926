"""What each part of TLM is worth: small models that differ in one thing, judged by what they write.

    python benchmarks/tlm_ablation.py train [--variants ...] [--seeds 2] [--steps 300] [--corpus DIR]
    python benchmarks/tlm_ablation.py judge [--measure]
    python benchmarks/tlm_ablation.py report

`train` makes a model of each variant from `data/cpu` (one thread, bf16, the same steps for all),
under runs/tlm_ablation; those that are there are kept, and those that miss a corpus are left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import ROOT, environment

SCRIPT = "tlm_ablation"
WORK = ROOT / "runs" / SCRIPT
BASE = {"tasks": "4", "rows": "8", "lr": "1.5e-3", "bf16": "true"}
PLAIN, PAIRS = (0.2, 0.8, 0.0), (0.2, 0.55, 0.25)
"""Shares of the steps: pre-training, fine-tuning, pairs."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """How a model is trained beside the base's settings, and how it is asked."""

    settings: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[float, float, float] = PLAIN
    corpus: bool = False
    model: str = ""
    """Whose model it asks; its own if absent."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    wished: bool = True


VARIANTS = {
    "speeds told": Variant(),
    "best only": Variant(settings={"stage": "best"}),
    "speeds told, then pairs": Variant(stages=PAIRS),
    "best only, then pairs": Variant(settings={"stage": "best"}, stages=PAIRS),
    "no pre-training": Variant(stages=(0.0, 1.0, 0.0)),
    "distilled search beside": Variant(corpus=True),
    "without counts": Variant(settings={"counts": "false"}),
    "atomic numbers, without counts": Variant(settings={"counts": "false", "atomic": "true"}),
    "masks off": Variant(settings={"masked": "false"}, sampling={"masked": False}),
    "width 64, 2 layers": Variant(settings={"heads": "4", "width": "64", "layers": "2"}),
    "width 256, 4 layers": Variant(settings={"heads": "8", "width": "256", "layers": "4"}),
    "masks off in writing alone": Variant(model="speeds told", sampling={"masked": False}),
    "limits not corrected": Variant(model="speeds told", sampling={"corrected": False}),
    "speed not asked for": Variant(model="speeds told", wished=False),
    "temperature 0.7": Variant(model="speeds told", sampling={"temperature": 0.7}),
    "guidance 1": Variant(model="speeds told", sampling={"guidance": 1.0}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=("train", "child", "judge", "report"))
    parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--corpus", nargs="*", type=Path, default=[])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    options = parser.parse_args()
    if options.stage == "train":
        train(options.variants, options.seeds, options.corpus, options.steps)
    if options.stage == "child":
        train_one(options.variants[0], options.seeds[0], options.corpus, options.steps)


# -- train -----------------------------------------------------------------------------------------


def folder_of(name: str, seed: int) -> Path:
    model = VARIANTS[name].model or name
    return WORK / f"{model.replace(', ', '-').replace(' ', '-')}-{seed}"


def train(names: Iterable[str], seeds: Iterable[int], corpora: list[Path], steps: int) -> None:
    """Each in a process of its own, one after the other."""
    for seed in seeds:
        for name in names:
            variant = VARIANTS[name]
            if variant.model or (folder_of(name, seed) / "config.json").exists():
                continue
            if variant.corpus and not corpora:
                print(f"{name}: left out, it needs --corpus", flush=True)
                continue
            command = [sys.executable, __file__, "child", "--variants", name]
            command += ["--seeds", str(seed), "--steps", str(steps)]
            if variant.corpus:
                command += ["--corpus", *map(str, corpora)]
            started = time.monotonic()
            one_thread = {**environment(), "OMP_NUM_THREADS": "1"}
            subprocess.run(command, check=True, env=one_thread)
            print(f"{name} {seed}: {time.monotonic() - started:.0f} s", flush=True)


def train_one(name: str, seed: int, corpora: list[Path], steps: int) -> None:
    from tensorese.records.store import Store
    from tensorese.training.recipes.base import DataSelection, apply_settings, train_model
    from tensorese.training.recipes.tlm import TLMRecipe

    variant = VARIANTS[name]
    recipe = TLMRecipe.named("tlm", "default", DataSelection(fold=-1))
    stages = zip(("pretrain", "steps", "preference"), variant.stages, strict=True)
    each = {stage: str(round(share * steps)) for stage, share in stages}
    with Store.open(ROOT / "data" / "cpu") as store:
        train_model(
            apply_settings(recipe, {**BASE, **each, **variant.settings, "seed": str(seed)}),
            [store],
            folder_of(name, seed),
            corpora=[Store.open(path) for path in corpora] if variant.corpus else (),
            command=f"benchmarks/{SCRIPT}.py train --variants '{name}' --steps {steps}",
            progress=lambda entry: print(f"{name} {seed}: {entry}", flush=True),
        )


if __name__ == "__main__":
    main()
