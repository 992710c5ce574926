"""Legality on integers against TVM, operator by operator: precision, recall, size of the space.

    python benchmarks/space_audit.py [--kind llvm cuda] [--operator conv2d ...] [--jobs 2]
        [--legal 504] [--stock 204] [--rows FILE]

Precision: of the rows we call legal (half sampled, half mutated), how many TVM replays to
themselves within the limits and passes through every postprocessor. Recall: of the rows stock
sampling and stock mutators produce and TVM passes, how many we call legal. `--build N` also
builds N of our rows per part: to machine code on a CPU, to CUDA source where TVM finds no GPU.

A task is divided by its sketches into parts, `--jobs` of which are examined at once. A line per
part goes to the file of rows when it is done; parts that are there already are not repeated.
`--table` prints what the file holds, operator by operator, and examines nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from common import add_rows, provenance, read_rows, result_file
from tensorese.space.audit import Audit, audit
from tensorese.space.counting import count
from tensorese.space.locations import LocationTable
from tensorese.space.space import TaskSpace, task_space
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

PARTS = 3  # of a task: most have three sketches
TARGETS = {
    "llvm": Target(kind="llvm", mcpu="znver4", cores=2),
    "cuda": Target.from_json(
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


def examine(
    job: dict[str, Any], *, legal: int, stock: int, builds: int, parts: int = 1
) -> dict[str, Any]:
    """One task (`operator`, `kind`) or, with `parts`, every so many-th of its sketches (`part`)."""
    tvm = import_tvm("llvm")
    started = time.perf_counter()
    module = tvm.IRModule({"main": operators()[job["operator"]]()})
    space = task_space(module, TARGETS[job["kind"]])
    built = time.perf_counter() - started
    # TVM lists sketches in no particular order: sorted by id, parts are the same everywhere.
    order = sorted(range(len(space.sketches)), key=lambda i: space.sketches[i].sketch.id)
    covered = [i for i in order if space.sketches[i].covered]
    share = max(1, len(covered))
    mine = covered[job.get("part", 0) :: parts]
    total = Audit()
    for index in mine:
        total += audit(space, index, legal=-(-legal // share), stock=-(-stock // share))
    return {
        **job,
        "sketches": len(space.sketches),
        "covered": len(covered),
        "reasons": sorted({s.reason for s in space.sketches if s.reason}),
        "asks": sorted({how for index in mine for how in asks(space, index)}),
        "rows": sum(count(space.sketches[i]) for i in mine),
        "build_secs": built,
        **dataclasses.asdict(total),
        "compiled": compiled(space, mine, builds) if mine else 0,
        "to_compile": builds if mine else 0,
        "secs": time.perf_counter() - started,
    }


def asks(space: TaskSpace, index: int) -> list[str]:
    """What this sketch still puts to TVM, and how often."""
    sketch = space.sketches[index]
    questions = []
    if any(isinstance(locator, LocationTable) for locator in sketch.locators.values()):
        questions.append("locations, once per case")
    if any(limit.replays for limit in sketch.limits):
        few = len(sketch.limits) == 1
        questions.append("verdict, once per case" if few else "verdict, per row that is left")
    return questions


def compiled(space: TaskSpace, covered: list[int], n: int) -> int:
    """How many of `n` of our rows TVM builds."""
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
    return good


def in_full(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of each task added up."""
    tasks: dict[tuple[str, str], dict[str, Any]] = {}
    added = [*(f.name for f in dataclasses.fields(Audit)), "rows", "compiled", "to_compile", "secs"]
    for row in rows:
        key = (row["kind"], row["operator"])
        if key not in tasks:
            tasks[key] = {**row, "parts": 1}
            continue
        whole = tasks[key]
        whole |= {name: whole[name] + row[name] for name in added}
        whole |= {name: sorted({*whole[name], *row[name]}) for name in ("asks", "reasons")}
        whole["parts"] += 1
    return list(tasks.values())


def report(rows: list[dict[str, Any]]) -> bool:
    """Prints a table; False where a task falls short of 99 %."""
    print("| operator | target | sketches | rows | precision | recall | built | TVM is asked |")
    print("|---|---|---|---|---|---|---|---|")
    good = True
    for row in in_full(rows):
        cells = [row["operator"], row["kind"], f"{row['covered']}/{row['sketches']}"]
        cells += [f"{float(row['rows']):.2g}", f"{row['were_legal']}/{row['called_legal']}"]
        cells += [f"{row['we_accepted']}/{row['stock_accepted']}"]
        cells += [f"{row['compiled']}/{row['to_compile']}", ", ".join(row["asks"])]
        print("| " + " | ".join(cells) + " |")
        short = row["were_legal"] < 0.99 * row["called_legal"]
        good &= not short and row["we_accepted"] >= 0.99 * row["stock_accepted"]
    return good


def jobs_of(args: argparse.Namespace, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """CUDA first: verdicts there take longest."""
    done = {(row["kind"], row["operator"], row["part"]) for row in known}
    return [
        {"kind": kind, "operator": operator, "part": part}
        for kind in sorted(args.kind)
        for operator in args.operator or operators()
        for part in range(PARTS)
        if (kind, operator, part) not in done
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kind", nargs="+", default=["llvm", "cuda"], choices=list(TARGETS))
    parser.add_argument("--operator", nargs="+", default=[])
    parser.add_argument("--legal", type=int, default=504)
    parser.add_argument("--stock", type=int, default=204)
    parser.add_argument("--build", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=result_file("space_audit", ".jsonl"))
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    rows = read_rows(args.rows)
    todo = [] if args.table else jobs_of(args, rows)
    settings = {"legal": args.legal, "stock": args.stock, "builds": args.build, "parts": PARTS}
    # Spawned: a process that has used TVM's threads must not be forked.
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(examine, job, **settings) for job in todo]):
            row = {**done.result(), **provenance()}
            rows.append(row)
            add_rows(args.rows, [row])
            shown = ("kind", "operator", "part", "were_legal", "called_legal")
            more = ("we_accepted", "stock_accepted", "secs")
            print({name: row[name] for name in (*shown, *more)}, flush=True)
    return 0 if report(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
