"""XGBoost as MetaSchedule uses it, and LightGBM likewise, on features of lowered programs.

    python benchmarks/lowered_trees.py extract --store data/cpu --platform znver4-2c --out DIR
    python benchmarks/lowered_trees.py judge --store data/cpu --platform znver4-2c --out DIR

`extract` has the farm's build workers lower every valid program for the platform's target; it
needs TVM, no device, and asks for what the cache in DIR lacks. `judge` trains MetaSchedule's model
(the score is the sum over stores, squared error), by XGBoost and by LightGBM, on all training
tasks, settings chosen on validation tasks as those of the other trees are, and adds the test rows
to `benchmarks/results/lowered_trees`, which `bench_models.py` reads.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from common import provenance, read_rows, result_file
from tensorese.evaluation.metrics import TaskResult, summary
from tensorese.features.lowered import LoweredCache
from tensorese.features.programs import ProgramSet
from tensorese.targets import Target
from tensorese.training.store_trees import SETTINGS

ROUNDS = 200
VALIDATION = 6
"""Every so many-th training task chooses the settings."""
Floats = npt.NDArray[np.float32]


# -- extract ---------------------------------------------------------------------------------


def wanted(store_path: Path, platform: str) -> list[Any]:
    """The valid measurements, of each program one, a task's together."""
    from tensorese.records.store import Store

    with Store.open(store_path) as store:
        found = {m.program.id: m for m in store.measurements(platform=platform) if m.status == "ok"}
    return sorted(found.values(), key=lambda m: (m.program.workload.id, m.program.id))


def extract(args: argparse.Namespace) -> None:
    from tensorese.measure.lowering import lower_programs

    measurements = wanted(args.store, args.platform)
    programs = [m.program for m in measurements]
    started, first = time.monotonic(), -1

    def report(done: int, total: int) -> None:
        nonlocal first
        first = done if first < 0 else first
        if done % 200 == 0 or done == total:
            rate = (done - first) / (time.monotonic() - started)
            print(f"{done} of {total} programs, {rate:.1f} a second", flush=True)

    target = Target.from_json(measurements[0].platform.target)
    cache = lower_programs(args.out, programs, target, workers=args.workers, progress=report)
    print(dict(Counter(cache.statuses(program.id for program in programs))))


# -- judge -----------------------------------------------------------------------------------


class Packed:
    """Rows of a program set from the cache of lowered programs."""

    def __init__(self, folder: Path, programs: ProgramSet, target: Target) -> None:
        self.ragged = LoweredCache(folder, target).of_programs(programs)

    def has(self, index: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return index[self.ragged.counts[index] > 0]

    def rows(self, index: npt.NDArray[Any]) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Vectors of these programs, and whose each one is."""
        chosen = self.ragged.take(index)
        return chosen.values, chosen.owner


def fit(
    kind: str,
    x: Floats,
    owner: npt.NDArray[np.int64],
    y: npt.NDArray[Any],
    setting: Mapping[str, Any],
) -> Any:
    """Squared error of the sum over a program's stores, weighed by the label as MetaSchedule does.

    A booster sees stores; the gradient of a program's error is handed to each of its stores.
    """

    def objective(said: npt.NDArray[Any], _: Any) -> tuple[Any, Any]:
        total = np.bincount(owner, weights=said, minlength=len(y))
        return ((total - y) * y)[owner], y[owner]

    if kind == "lightgbm":
        import lightgbm

        params = {"seed": 43, "verbose": -1, "objective": objective, **setting}
        return lightgbm.train(params, lightgbm.Dataset(x, np.zeros(len(x))), ROUNDS)
    import xgboost

    data = xgboost.DMatrix(x, np.zeros(len(x)))
    params = {"seed": 43, "nthread": os.cpu_count(), "base_score": 0.0, **setting}
    return xgboost.train(params, data, ROUNDS, obj=objective)


def said_of(
    kind: str, model: Any, x: Floats, owner: npt.NDArray[np.int64], n: int
) -> npt.NDArray[Any]:
    given: Any = x
    if kind == "xgboost":
        import xgboost

        given = xgboost.DMatrix(x)
    return np.bincount(owner, weights=model.predict(given), minlength=n)


def sides(programs: ProgramSet) -> tuple[list[int], list[int]]:
    """Training and validation tasks, dealt by operator as those of what ships."""
    order = sorted(
        range(len(programs.tasks)),
        key=lambda k: (programs.workloads[programs.tasks[k]].operator, programs.tasks[k]),
    )
    validation = order[VALIDATION // 2 :: VALIDATION]
    return [k for k in order if k not in set(validation)], validation


def ratios(results: Sequence[TaskResult]) -> dict[str, list[float]]:
    """Top-1, top-5 and pairs ordered right, by task."""
    return {r.task: [round(x, 5) for x in (r.ratio(1), r.ratio(5), r.pairwise)] for r in results}


def mark(results: Sequence[TaskResult]) -> float:
    """What settings are chosen by: the means of top-1, top-5 and the first five picks."""
    each = [(r.ratio(1), r.ratio(5), r.steady) for r in results]
    return float(np.mean(each)) if each else 0.0


def judge(args: argparse.Namespace) -> None:
    from tensorese.evaluation.judge import judge_scores
    from tensorese.features.programs import read_programs
    from tensorese.records.store import Store
    from tensorese.training.labels import only, tree_labels
    from tensorese.training.trees import installed_trees

    with Store.open(args.store) as store:
        programs = read_programs([store], split="train")
        test = read_programs([store], split="test")
        example = next(iter(store.measurements(platform=args.platform)))
    target = Target.from_json(example.platform.target)
    train_set, test_set = only(programs, args.platform), only(test, args.platform)
    mine = Packed(args.out, train_set, target)
    all_of = train_set.valid(0)
    train, validation = sides(programs)

    tested = Packed(args.out, test_set, target)

    def grown(kind: str, tasks: Sequence[int], setting: Mapping[str, Any]) -> Any:
        index, labels = tree_labels(train_set, tasks)
        keep = np.isin(index, mine.has(index))
        x, owner = mine.rows(index[keep])
        return fit(kind, x, owner, labels[keep].astype(np.float64), setting)

    def scores(kind: str, model: Any, packed: Packed, given: Any) -> npt.NDArray[np.float64]:
        index = packed.has(given.valid(0))
        out = np.full(len(given), -np.inf)  # what TVM does not take is never chosen
        x, owner = packed.rows(index)
        out[index] = said_of(kind, model, x, owner, len(index))
        return out

    for kind in [kind for kind in installed_trees() if kind in args.kinds.split(",")]:
        marks = []
        for setting in SETTINGS[kind]:
            found = scores(kind, grown(kind, train, setting), mine, train_set)
            marks.append(mark(judge_scores(train_set, args.platform, found, list(validation))))
            print(f"{kind} {setting}: {marks[-1]:.4f} on validation tasks", flush=True)
        best = SETTINGS[kind][int(np.argmax(marks))]
        model = grown(kind, range(len(programs.tasks)), best)
        found = scores(kind, model, tested, test_set)
        results = judge_scores(test_set, args.platform, found, list(range(len(test.tasks))))
        figures = {**summary(results), "ratios": ratios(results)}
        keep_row(args, f"{kind} on lowered features", best, figures, len(mine.has(all_of)))


def keep_row(
    args: argparse.Namespace, system: str, best: Mapping[str, Any], figures: Any, programs: int
) -> None:
    """In place of the row of the same system and platform."""
    row = {
        "part": "test",
        "store": args.store.name,
        "recipe": "trees",
        "model": system,
        "platform": args.platform,
        "seed": 0,
        "setting": best,
        "trained_on": programs,
        **figures,
        **provenance(),
    }
    print({k: row[k] for k in ("model", "platform", "trained_on", "top1", "top5", "pairwise")})
    path = result_file("lowered_trees", ".jsonl")
    kept = read_rows(path)
    same = [(old["platform"], old["model"]) == (args.platform, system) for old in kept]
    kept = [old for old, is_same in zip(kept, same, strict=True) if not is_same]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in [*kept, row]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("extract", "judge"):
        sub = verbs.add_parser(verb)
        sub.add_argument("--store", type=Path, required=True)
        sub.add_argument("--platform", required=True)
        sub.add_argument("--out", type=Path, required=True)
        sub.add_argument("--workers", type=int, default=os.cpu_count())
        sub.add_argument("--kinds", default=",".join(SETTINGS))
    args = parser.parse_args()
    {"extract": extract, "judge": judge}[args.verb](args)


if __name__ == "__main__":
    main()
