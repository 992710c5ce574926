"""XGBoost as MetaSchedule uses it, and LightGBM likewise, on features of lowered programs.

    python benchmarks/lowered_trees.py extract --store data/cpu --platform znver4-2c --out DIR
    python benchmarks/lowered_trees.py judge --store data/cpu --platform znver4-2c --out DIR

`extract` schedules every valid program again, postprocesses it for the platform's target and asks
TVM's own `PerStoreFeature` for a vector a store; it needs TVM, no device, and asks for what DIR
lacks. `judge` trains MetaSchedule's model (the score is the sum over stores, squared error), by
XGBoost and by LightGBM, on all training tasks, settings chosen on validation tasks as those of the
other trees are, and adds the test rows to `benchmarks/results/lowered_trees`, which
`bench_models.py` reads.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from common import provenance, read_rows, result_file

CHUNK = 400
"""Programs in one file: what a stopped run may lose."""
SETTINGS: dict[str, tuple[dict[str, Any], ...]] = {
    "xgboost": (
        {"max_depth": 10, "gamma": 0.001, "min_child_weight": 0, "eta": 0.2},  # MetaSchedule's own
        {"max_depth": 6, "gamma": 0.001, "min_child_weight": 5, "eta": 0.1},
        {"max_depth": 8, "gamma": 0.0, "min_child_weight": 20, "eta": 0.1, "colsample_bytree": 0.5},
    ),
    "lightgbm": (
        {"num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 20},
        {"num_leaves": 63, "learning_rate": 0.1, "min_data_in_leaf": 20, "feature_fraction": 0.5},
        {"num_leaves": 255, "learning_rate": 0.1, "min_data_in_leaf": 20, "feature_fraction": 0.5},
    ),
}
ROUNDS = 200
Floats = npt.NDArray[np.float32]


# -- extract ---------------------------------------------------------------------------------


def wanted(store_path: Path, platform: str) -> list[Any]:
    """The valid measurements, of each program one, a task's together."""
    from tensorese.records.store import Store

    with Store.open(store_path) as store:
        found = {m.program.id: m for m in store.measurements(platform=platform) if m.status == "ok"}
    return sorted(found.values(), key=lambda m: (m.program.workload.id, m.program.id))


def extract_part(job: tuple[Path, str, frozenset[str], Path]) -> str:
    """One file: programs, how many stores each has, and the stores' vectors."""
    store_path, platform, names, path = job
    from tensorese.tvm_env import import_tvm

    tvm = import_tvm("llvm")
    extractor = tvm.s_tir.meta_schedule.feature_extractor.PerStoreFeature()
    ids, counts, vectors, failed = [], [], [], 0
    for m in wanted(store_path, platform):
        if m.program.id not in names:
            continue
        try:
            each = _features(tvm, extractor, m)
        except (RuntimeError, ValueError, TypeError):
            failed += 1
            continue
        ids.append(m.program.id)
        counts.append(len(each))
        vectors.append(each)
    if not ids:
        return f"{path.name}: {failed} programs that TVM does not take"
    arrays = {"ids": np.array(ids), "counts": np.array(counts), "vectors": np.concatenate(vectors)}
    scratch = path.with_suffix(".part.npz")
    np.savez_compressed(scratch, **arrays)
    os.replace(scratch, path)
    return f"{path.name}: {len(ids)} programs, {failed} that TVM does not take"


_CONTEXTS: dict[str, tuple[Any, Any, list[Any]]] = {}


def _features(tvm: Any, extractor: Any, measurement: Any) -> Floats:
    from tensorese.measure.jobs import trace_of
    from tensorese.space.replay import tune_context
    from tensorese.targets import Target

    workload = measurement.program.workload
    target = Target.from_json(measurement.platform.target)
    if workload.id not in _CONTEXTS:
        _CONTEXTS.clear()  # tasks come one after the other
        module = tvm.ir.load_json(workload.module)
        context = tune_context(module, target)
        _CONTEXTS[workload.id] = (module, context, list(context.space_generator.postprocs))
    module, context, postprocessors = _CONTEXTS[workload.id]
    schedule = tvm.s_tir.Schedule(module)
    trace = json.loads(trace_of(measurement.program, target))
    tvm.s_tir.schedule.Trace.apply_json_to_schedule(trace, schedule)
    if not measurement.program.tail:
        schedule.enter_postproc()
        for one in postprocessors:
            one.apply(schedule)
    candidate = tvm.s_tir.meta_schedule.MeasureCandidate(schedule, [])
    found: Floats = extractor.extract_from(context, [candidate])[0].numpy().astype(np.float32)
    return found


def extract(args: argparse.Namespace) -> None:
    folder = args.out / args.platform
    folder.mkdir(parents=True, exist_ok=True)
    known: set[str] = set()
    for path in folder.glob("*.npz"):
        with np.load(path, allow_pickle=False) as file:
            known |= set(file["ids"].tolist())
    names = [m.program.id for m in wanted(args.store, args.platform) if m.program.id not in known]
    first = max((int(path.stem) + CHUNK for path in folder.glob("??????.npz")), default=0)
    jobs = [
        (
            args.store,
            args.platform,
            frozenset(names[at : at + CHUNK]),
            folder / f"{first + at:06d}.npz",
        )
        for at in range(0, len(names), CHUNK)
    ]
    started = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(args.workers, maxtasksperchild=8) as pool:
        for k, told in enumerate(pool.imap_unordered(extract_part, jobs)):
            spent = time.monotonic() - started
            left = spent / (k + 1) * (len(jobs) - k - 1)
            print(f"{told}; {left / 60:.1f} min left", flush=True)


# -- judge -----------------------------------------------------------------------------------


class Packed:
    """Vectors of programs laid end to end, in the order of `ids`."""

    def __init__(self, folder: Path, ids: Sequence[str]) -> None:
        known: dict[str, Floats] = {}
        for path in sorted(folder.glob("*.npz")):
            with np.load(path, allow_pickle=False) as file:
                ends = np.cumsum(file["counts"])
                parts = np.split(file["vectors"], ends[:-1])
                known |= dict(zip(file["ids"].tolist(), parts, strict=True))
        self.vectors = [known.get(name) for name in ids]

    def has(self, index: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.array([k for k in index if self.vectors[k] is not None], dtype=np.int64)

    def rows(self, index: npt.NDArray[Any]) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Vectors of these programs, and whose each one is."""
        chosen = [self.vectors[k] for k in index]
        owner = np.repeat(np.arange(len(index)), [len(one) for one in chosen])
        return np.concatenate(chosen), owner


def fit(
    kind: str,
    x: Floats,
    owner: npt.NDArray[np.int64],
    y: npt.NDArray[Any],
    setting: dict[str, Any],
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


def judge(args: argparse.Namespace) -> None:
    from tensorese.evaluation.trees import installed_trees, tree_labels

    from ship_models import _mark, sides, told
    from tensorese.evaluation.metrics import summary
    from tensorese.evaluation.judge import judge_scores
    from tensorese.features.programs import read_programs
    from tensorese.records.store import Store

    with Store.open(args.store) as store:
        programs = read_programs([store], split="train")
        test = read_programs([store], split="test")
    from tensorese.training.physics import only

    train_set, test_set = only(programs, args.platform), only(test, args.platform)
    mine = Packed(args.out / args.platform, train_set.ids)
    all_of = train_set.valid(0)
    train, validation = sides(programs, programs.tasks)

    tested = Packed(args.out / args.platform, test_set.ids)

    def grown(kind: str, tasks: Sequence[int], setting: dict[str, Any]) -> Any:
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
            marks.append(_mark(judge_scores(train_set, args.platform, found, list(validation))))
            print(f"{kind} {setting}: {marks[-1]:.4f} on validation tasks", flush=True)
        best = SETTINGS[kind][int(np.argmax(marks))]
        model = grown(kind, range(len(programs.tasks)), best)
        found = scores(kind, model, tested, test_set)
        results = judge_scores(test_set, args.platform, found, list(range(len(test.tasks))))
        figures = {**summary(results), "ratios": told(results)}
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
