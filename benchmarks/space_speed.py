"""Legal candidates per second: rows drawn and judged as integers, against replaying in TVM.

    python benchmarks/space_speed.py [--kind llvm cuda] [--case conv2d ...] [--seconds 10]

Replay is what stock search does to a sample: draw the trace's decisions, schedule, postprocess.
Both sides count legal candidates only, start after their set-up (reported apart) and use one
core. On integers the time for 2,048 rows (a warm space), and for up to a million, is given too.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from typing import Any

import numpy as np

from common import write_result
from space_audit import TARGETS, operators
from tensorese.space.replay import SCHEDULE_ERRORS
from tensorese.space.space import TaskSpace, task_space
from tensorese.tvm_env import import_tvm

CASES = ("conv2d", "matmul", "depthwise_conv2d", "softmax")
SIZES = (2_048, 16_384, 131_072, 1_048_576)


def replayed(space: TaskSpace, seconds: float) -> dict[str, float]:
    """Stock's way for `seconds`, sketches in turn."""
    referee = space.referee
    tvm = referee.tvm
    passed = tried = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        sketch = tried % len(space.sketches)
        tried += 1
        schedule = tvm.s_tir.Schedule(referee.module, seed=tried)
        trace = tvm.s_tir.schedule.Trace(referee.instructions[sketch], {})
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
            schedule.enter_postproc()
            passed += all(p.apply(schedule) for p in referee.context.space_generator.postprocs)
        except SCHEDULE_ERRORS:
            continue
    spent = time.perf_counter() - started
    return {"tried_per_sec": tried / spent, "legal_per_sec": passed / spent}


def drawn(space: TaskSpace, sizes: tuple[int, ...]) -> dict[str, Any]:
    """Legal rows on integers, all sketches in equal shares, per size; the first fills tables."""
    rng = np.random.default_rng(0)
    secs = {}
    for size in (sizes[0], *sizes):
        share = -(-size // len(space.sketches))
        started = time.perf_counter()
        for sketch in space.sketches:
            sketch.sample(share, rng)
        secs.setdefault("cold", time.perf_counter() - started)
        secs[str(size)] = time.perf_counter() - started
    return {"secs": secs, "legal_per_sec": sizes[-1] / secs[str(sizes[-1])]}


def compare(kind: str, case: str, seconds: float) -> dict[str, Any]:
    tvm = import_tvm("llvm")
    module = tvm.IRModule({"main": operators()[case]()})
    started = time.perf_counter()
    space = task_space(module, TARGETS[kind])
    built = time.perf_counter() - started
    ours, stock = drawn(space, SIZES), replayed(space, seconds)
    ratio = ours["legal_per_sec"] / stock["legal_per_sec"] if stock["legal_per_sec"] else None
    result = {
        "kind": kind,
        "case": case,
        "set_up_secs": built,
        "integers": ours,
        "replay": stock,
        "ratio": ratio,
        "max_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(
        f"{kind} {case}: set up {built:.2f} s; 2048 rows {ours['secs']['2048'] * 1e3:.1f} ms "
        f"(first time {ours['secs']['cold'] * 1e3:.0f} ms); {ours['legal_per_sec']:,.0f}/s "
        f"against {stock['legal_per_sec']:.2f}/s replayed",
        flush=True,
    )
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kind", nargs="+", default=["llvm", "cuda"], choices=list(TARGETS))
    parser.add_argument("--case", nargs="+", default=list(CASES))
    parser.add_argument("--seconds", type=float, default=10.0, help="of replaying, per case")
    args = parser.parse_args()
    rows = [compare(kind, case, args.seconds) for kind in args.kind for case in args.case]
    print("written", write_result("space_speed", {"rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
