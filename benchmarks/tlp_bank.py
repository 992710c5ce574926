"""Held-out scores of every network of a job, kept in a file: mixes are judged after training.

Scores are 16-bit steps between their least and greatest, by network: finer than what tells two
programs apart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

STEPS = 65535


def packed(key: str, scores_nm: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Two arrays for a file: steps `[n, networks]` and their range `[2, networks]`."""
    low, high = scores_nm.min(0), scores_nm.max(0)
    wide = np.maximum(high - low, 1e-9)
    steps = np.round((scores_nm - low) / wide * STEPS).astype(np.uint16)
    return {key: steps, f"{key}/range": np.stack([low, high]).astype(np.float64)}


def save_bank(
    out: Path, name: str, common: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]
) -> None:
    """`common` is what all rows of the job will say."""
    note = np.frombuffer(json.dumps(common).encode(), dtype=np.uint8)
    np.savez(out / f"bank_{name}.npz", common=note, **arrays)


@dataclass(frozen=True, kw_only=True)
class Banked:
    """One model's say on its held-out programs, in the order of `judged_index`."""

    platform: str
    fold: int
    seed: int
    scores: npt.NDArray[np.float64]


def load_bank(path: Path) -> tuple[dict[str, Any], list[Banked]]:
    found = []
    with np.load(path, allow_pickle=False) as file:
        common = json.loads(file["common"].tobytes())
        for key in file.files:
            if key == "common" or key.endswith("/range"):
                continue
            platform, fold, seed = key.split("/")
            low, high = file[f"{key}/range"]
            scores = low + file[key].astype(np.float64) / STEPS * np.maximum(high - low, 1e-9)
            where = {"platform": platform, "fold": int(fold), "seed": int(seed)}
            found.append(Banked(scores=scores, **where))
    return common, found
