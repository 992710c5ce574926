"""Onboarding on a machine that no model has seen, judged on test rows measured there.

    tensorese collect --tasks data/tasks.parquet --split test --programs data/cpu --out TEST
    tensorese onboard --minutes 15 --out MODEL
    python benchmarks/onboard_real.py MODEL TEST [--seeds 3] [--start FOLDER HEAD]

What MODEL/store holds teaches the nearest shipped head again, once a seed; the nearest head as it
is and each taught one rank TEST's programs. Probes are of training tasks, so no test task is ever
learnt from. Writes `benchmarks/results/onboard_real`. Where a model of the platform ships by now,
`--start` names what there was before.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from common import write_result
from onboard_sim import _kept, judged
from tensorese.evaluation.metrics import bootstrap
from tensorese.evaluation.splits import check_disjoint
from tensorese.features.programs import read_programs
from tensorese.models.catalog import SHIPPED, choose
from tensorese.onboard.adapt import adapt, start_from
from tensorese.onboard.session import STORE
from tensorese.records.store import Store
from tensorese.training.physics import small_set


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--start", nargs=2, metavar=("FOLDER", "HEAD"), default=None)
    args = parser.parse_args()
    with Store.open(args.model / STORE) as store, Store.open(args.test) as tests:
        (platform,) = store.platforms()
        probes = read_programs([store], platforms=(platform,), split="train")
        test = small_set(read_programs([tests], platforms=(platform,), split="test"))
        choice = choose(next(iter(store.measurements())).platform, [SHIPPED])
    check_disjoint(probes.tasks, test.programs.tasks, probes.workloads)
    if args.start:
        folder, head = Path(args.start[0]), args.start[1]
    elif choice is not None and choice.head != platform:
        folder, head = choice.folder, choice.head
    else:
        parser.error(f"a shipped model knows {platform}; name another with --start FOLDER HEAD")
    before = judged(start_from(folder, head, platform).eval(), test, platform)
    given = small_set(probes)
    rows: list[dict[str, Any]] = []
    gains: list[list[float]] = []
    for seed in range(args.seeds):
        taught = adapt(given, platform, folder, head, seed=seed)
        after = judged(taught.model, test, platform)
        gains.append([b.ratio(1) - a.ratio(1) for a, b in zip(before, after, strict=True)])
        row = {"seed": seed, "variant": taught.variant, "trees": str(taught.votes)}
        rows.append({**row, "after": _kept(after)})
        print(rows[-1], flush=True)
    interval = bootstrap(np.mean(gains, axis=0).tolist())
    result = {
        "platform": platform,
        "start": f"{folder.name}, head {head}",
        "labels": int(np.isfinite(probes.latency).sum()),
        "probe_tasks": len(probes.tasks),
        "test_tasks": len(before),
        "test_programs": int(np.isfinite(test.programs.latency).sum()),
        "before": _kept(before),
        "gain": [interval.mean, interval.low, interval.high],
        "runs": rows,
    }
    print(result)
    write_result("onboard_real", result)


if __name__ == "__main__":
    main()
