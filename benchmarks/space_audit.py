"""Legality on integers against TVM, operator by operator: precision, recall, size of the space.

    python benchmarks/space_audit.py [--kind llvm cuda] [--operator conv2d ...]
        [--legal 504] [--stock 204]

Precision: of the rows we call legal (half sampled, half mutated), how many TVM replays to
themselves within the limits and passes through every postprocessor. Recall: of the rows stock
sampling and stock mutators produce and TVM passes, how many we call legal. `--build N` also
builds N of our rows per operator: to machine code on a CPU, to CUDA source where TVM finds no GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from common import write_result
from tensorese.space.audit import Audit, audit
from tensorese.space.counting import count
from tensorese.space.locations import LocationTable
from tensorese.space.space import TaskSpace, task_space
from tensorese.tvm_env import import_tvm

TARGETS = {
    "llvm": '{"kind":"llvm","mcpu":"znver4","num-cores":2}',
    "cuda": (
        '{"arch":"sm_90","kind":"cuda","max_num_threads":1024,'
        '"max_shared_memory_per_block":49152,"max_threads_per_block":1024,'
        '"registers_per_block":65536,"thread_warp_size":32}'
    ),
}


def operators() -> dict[str, Callable[[], Any]]:
    """Makers of a PrimFunc by operator name: the kinds of subgraph the zoo is made of."""
    tvm = import_tvm("llvm")
    from tvm import topi
    from tvm.s_tir.meta_schedule.testing import te_workload as te_w

    te = tvm.te

    def configured(name: str, index: int = 0) -> Callable[[], Any]:
        return lambda: te_w.create_te_workload(name, index)

    def made(maker: Callable[..., Any], *args: Any) -> Callable[[], Any]:
        return lambda: te.create_prim_func(maker(*args))

    def elementwise() -> Any:
        x, y = (te.placeholder((1, 56, 56, 256), name=n) for n in "xy")
        total = te.compute(x.shape, lambda *i: x(*i) + y(*i), name="add")
        relu = te.compute(x.shape, lambda *i: te.max(total(*i), 0.0), name="relu")
        return te.create_prim_func([x, y, relu])

    def average_pool() -> Any:
        x = te.placeholder((1, 2048, 7, 7), name="x")
        return te.create_prim_func([x, topi.nn.global_pool(x, "avg")])

    return {
        "matmul": made(te_w.matmul, 512, 512, 512),
        "dense_relu": made(te_w.matmul_relu, 128, 768, 768),
        "batch_matmul": configured("GMM", 1),
        "transpose_batch_matmul": configured("TBG"),
        "conv1d": configured("C1D"),
        "conv2d": configured("C2D"),
        "conv2d_3x3": configured("C2D", 2),
        "conv3d": configured("C3D", 2),
        "dilated_conv2d": configured("DIL", 2),
        "depthwise_conv2d": configured("DEP"),
        "grouped_conv2d": configured("GRP"),
        "transposed_conv2d": configured("T2D"),
        "conv2d_bn_relu": configured("CBR", 1),
        "softmax": configured("SFM"),
        "norm": configured("NRM", 1),
        "max_pool2d": made(te_w.max_pool2d_nchw, 1, 64, 112, 112, 1),
        "global_average_pool": average_pool,
        "elementwise": elementwise,
    }


def examine(name: str, func: Any, kind: str, legal: int, stock: int, builds: int) -> dict[str, Any]:
    tvm = import_tvm("llvm")
    started = time.perf_counter()
    space = task_space(tvm.IRModule({"main": func}), TARGETS[kind])
    built = time.perf_counter() - started
    covered = [i for i, s in enumerate(space.sketches) if s.covered]
    share = max(1, len(covered))
    total = Audit()
    for index in covered:
        each = audit(space, index, legal=-(-legal // share), stock=-(-stock // share))
        total += each
    row = {
        "operator": name,
        "kind": kind,
        "sketches": len(space.sketches),
        "covered": len(covered),
        "reasons": sorted({s.reason for s in space.sketches if s.reason}),
        "asks": sorted({how for index in covered for how in asks(space, index)}),
        "rows": str(sum(count(space.sketches[i]) for i in covered)),
        "build_secs": built,
        "called_legal": total.called_legal,
        "precision": total.precision,
        "stock_accepted": total.stock_accepted,
        "recall": total.recall,
        "secs": time.perf_counter() - started,
    }
    if builds:
        row["compiled"] = compiled(space, covered, builds)
    print(
        f"{kind} {name}: {len(covered)}/{len(space.sketches)} sketches, precision "
        f"{total.were_legal}/{total.called_legal}, recall {total.we_accepted}/"
        f"{total.stock_accepted}, {row['asks']} {row['reasons']} {row['secs']:.0f} s",
        flush=True,
    )
    return row


def asks(space: TaskSpace, index: int) -> list[str]:
    """What this sketch still puts to TVM, and how often."""
    sketch = space.sketches[index]
    found = []
    if any(isinstance(locator, LocationTable) for locator in sketch.locators.values()):
        found.append("locations, once per case")
    if any(limit.replays for limit in sketch.limits):
        few = len(sketch.limits) == 1
        found.append("verdict, once per case" if few else "verdict, per row that is left")
    return found


def compiled(space: TaskSpace, covered: list[int], n: int) -> str:
    """`ok/n` of our rows that TVM builds."""
    tvm = import_tvm("llvm")
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    good = 0
    for k in range(n):
        index = covered[k % len(covered)]
        row = space.sketches[index].sample(1, np.random.default_rng(k))[0]
        module = space.replay(index, row).schedule.mod
        stripped = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
        target = space.referee.context.target
        try:
            with target:
                library = tvm.build(stripped, target=target)
            sources = [part.inspect_source() for part in library.imports]
            good += target.kind.name != "cuda" or any("__global__" in s for s in sources)
        except Exception as error:
            print("not compiled:", error)
    return f"{good}/{n}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kind", nargs="+", default=["llvm", "cuda"], choices=list(TARGETS))
    parser.add_argument("--operator", nargs="+", default=[])
    parser.add_argument("--legal", type=int, default=504)
    parser.add_argument("--stock", type=int, default=204)
    parser.add_argument("--build", type=int, default=0)
    parser.add_argument("--name", default="space_audit", help="of the JSON in benchmarks/results")
    args = parser.parse_args()
    makers = operators()
    rows = []
    for kind in args.kind:
        for name in args.operator or makers:
            rows.append(examine(name, makers[name](), kind, args.legal, args.stock, args.build))
            print("written", write_result(args.name, {"rows": rows}))
    short = [r for r in rows if r["covered"] and min(r["precision"], r["recall"]) < 0.99]
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
