"""How few measurements the online ranker needs: picking from a pool of measured programs.

    python benchmarks/online_replay.py --store STORE [--batch 16] [--batches 6] [--seeds 20]

The store holds random programs of some tasks (`tensorese collect`). A run starts with a random
batch; then each batch is what a ranker puts first among the programs not taken yet, whose stored
measurements it learns. Printed: the pool's best latency over the best found, after each batch,
averaged over seeds; 1 is found. `xgb` learns the same features with TVM's tree settings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from common import write_result
from tensorese.records.nouns import Measurement
from tensorese.records.store import Store
from tensorese.search.rankers.labels import columns_of, is_label, labels_of, seconds_of
from tensorese.search.rankers.online import OnlineRanker

Pick = Callable[[Sequence[Measurement], Sequence[Measurement]], npt.NDArray[np.float64]]
"""Scores of the second list's programs after learning the first."""


def online(known: Sequence[Measurement], open_: Sequence[Measurement]) -> npt.NDArray[np.float64]:
    ranker = OnlineRanker()
    ranker.update(known)
    scores = np.zeros(len(open_))
    by_sketch: dict[str, list[int]] = {}
    for index, m in enumerate(open_):
        by_sketch.setdefault(m.program.sketch.id, []).append(index)
    for members in by_sketch.values():
        first = open_[members[0]]
        rows = [open_[i].program.decisions for i in members]
        about = first.program.workload, first.platform.name, first.program.sketch
        scores[members] = ranker.score(*about, rows)
    return scores


def trees(known: Sequence[Measurement], open_: Sequence[Measurement]) -> npt.NDArray[np.float64]:
    import xgboost

    names: dict[str, int] = {}
    columns = columns_of([*known, *open_], names)
    runs = [k for k, m in enumerate(known) if seconds_of(m) > 0]
    speeds = np.zeros(len(known))  # of a failure: none, as in MetaSchedule
    speeds[runs] = np.exp2(labels_of([known[k] for k in runs]))
    settings: dict[str, Any] = {"max_depth": 10, "eta": 0.2, "gamma": 0.001, "nthread": 1}
    model = xgboost.train(settings, xgboost.DMatrix(columns[: len(known)], speeds), 100)
    scores: npt.NDArray[np.float64] = model.predict(xgboost.DMatrix(columns[len(known) :]))
    return scores


def chance(known: Sequence[Measurement], open_: Sequence[Measurement]) -> npt.NDArray[np.float64]:
    return np.random.default_rng(len(known)).random(len(open_))


def run(pool: list[Measurement], pick: Pick, batch: int, batches: int, seed: int) -> list[float]:
    order = np.random.default_rng(seed).permutation(len(pool))
    known, open_ = [pool[i] for i in order[:batch]], [pool[i] for i in order[batch:]]
    goal = min(seconds_of(m) for m in pool if seconds_of(m) > 0)
    reached = []
    for _ in range(batches):
        ran = [seconds_of(m) for m in known if seconds_of(m) > 0]
        reached.append(goal / min(ran) if ran else 0.0)
        best = np.argsort(-pick(known, open_), kind="stable")[:batch]
        known = known + [open_[i] for i in best]
        open_ = [m for i, m in enumerate(open_) if i not in set(best.tolist())]
    return reached


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", required=True)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--least", type=int, default=200, help="programs a task must have")
    args = parser.parse_args()
    pools: dict[str, list[Measurement]] = {}
    for m in Store.open(args.store).measurements(split="train"):
        if is_label(m):
            pools.setdefault(f"{m.program.workload.operator} {m.platform.name}", []).append(m)
    ways: dict[str, Pick] = {"random": chance, "xgb": trees, "online": online}
    rows = []
    for name, pool in pools.items():
        if len(pool) < args.least:
            continue
        for way, pick in ways.items():
            curves = [run(pool, pick, args.batch, args.batches, s) for s in range(args.seeds)]
            mean = np.mean(curves, axis=0).round(3).tolist()
            rows.append({"task": name, "pool": len(pool), "way": way, "found": mean})
            print(name, len(pool), way, mean, flush=True)
    settings = {"batch": args.batch, "seeds": args.seeds}
    print("written", write_result("online_replay", {**settings, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
