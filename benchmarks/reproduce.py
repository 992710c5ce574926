"""A shipped model trained again by one command, beside the one in the wheel.

    tensorese train ensemble --preset ship --data data/cpu --platform znver4-2c --out DIR
    python benchmarks/reproduce.py DIR [--data data/cpu]

Both are judged on one in six of the training tasks, dealt by operator (both have seen them), and
on the test rows. Writes `results/reproduce/PLATFORM.json`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT, write_result
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.metrics import summary
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.models.base import Model, load_model
from tensorese.models.catalog import SHIPPED
from tensorese.records.store import Store

SHARE = 6


def validation(programs: ProgramSet) -> list[int]:
    order = sorted(
        range(len(programs.tasks)),
        key=lambda k: (programs.workloads[programs.tasks[k]].operator, programs.tasks[k]),
    )
    return order[SHARE // 2 :: SHARE]


def figures(model: Model, programs: ProgramSet, platform: str, tasks: list[int]) -> dict[str, Any]:
    scores = model.rank(model.read_all(programs), platform).astype(np.float64)
    judged = summary(judge_scores(programs, platform, scores, tasks))
    return {key: judged[key] for key in ("top1", "top5", "pairwise", "tasks")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    args = parser.parse_args()
    again = load_model(args.folder)
    platform = again.platforms[0]
    models = {"shipped": load_model(SHIPPED / platform), "trained again": again}
    rows: dict[str, Any] = {}
    with Store.open(args.data) as store:
        for part in ("train", "test"):
            programs = read_programs([store], platforms=(platform,), split=part)
            tasks = validation(programs) if part == "train" else list(range(len(programs.tasks)))
            name = "validation tasks" if part == "train" else "test rows"
            rows[name] = {k: figures(m, programs, platform, tasks) for k, m in models.items()}
            for system, row in rows[name].items():
                shown = "  ".join(f"{key} {value:.4f}" for key, value in row.items())
                print(f"{name:17} {system:14} {shown}")
    write_result("reproduce", {"platform": platform, "rows": rows}, platform)


if __name__ == "__main__":
    main()
