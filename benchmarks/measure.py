"""Stock LocalBuilder + LocalRunner against the farm, on the same candidates, in one run.

    python benchmarks/measure.py [--case conv2d matmul softmax] [--candidates 64] [--rounds 2]

Both get all cores (stock through TVM_NUM_THREADS), each pass is a fresh process, passes are
interleaved, and worker start-up counts on both sides. Three systems:

  stock      number 3, repeat 1, min_repeat_ms 100: TVM's defaults
  fixed      the farm at those very settings
  adaptive   the farm as it is by default, verification on

A fourth pass, `compile`, has warm processes, one a core, compile and link the candidates and do
nothing else: with start-up, timing and verification for free no farm could be faster.

Reported: programs per second; how well per-candidate times of the faster half agree with stock,
beside how well stock agrees with itself; and the ten best of the adaptive pass timed again
together. Softmax, whose candidates LLVM may take minutes over, is run by the farm alone: it must
end within its limits and name what it cut.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common import write_result

SETTINGS = {"number": 3, "repeat": 1, "min_repeat_ms": 100}
NEEDED = {"conv2d": 6.0, "matmul": 5.0}
SOFTMAX_LIMIT = 5.0  # seconds of LLVM per candidate
SYSTEMS = ("stock", "fixed", "adaptive")


# -- one pass, in a process of its own -------------------------------------------------------


def run_pass(system: str, folder: Path) -> None:
    """Measures every candidate of `folder` once and writes what it took."""
    candidates = json.loads((folder / "candidates.json").read_text())
    passes = {"stock": stock_pass, "compile": compile_pass}
    result = passes.get(system, farm_pass)(system, candidates)
    (folder / "result.json").write_text(json.dumps(result))


def stock_pass(_: str, candidates: dict[str, Any]) -> dict[str, Any]:
    os.environ["TVM_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
    import tvm
    from tvm.s_tir import meta_schedule as ms

    target = tvm.target.Target(json.loads(candidates["target"]))
    modules = [tvm.ir.load_json(text) for text in candidates["modules"]]
    started = time.perf_counter()
    builder = ms.builder.LocalBuilder(
        max_workers=len(os.sched_getaffinity(0)),
        timeout_sec=120.0,  # its own 30 s are eaten by start-up when anything else runs
    )
    runner = ms.runner.LocalRunner(evaluator_config=ms.runner.EvaluatorConfig(**SETTINGS))
    built = builder.build([ms.builder.BuilderInput(m, target) for m in modules])
    built_at = time.perf_counter()
    inputs, positions = [], []
    for index, (module, result) in enumerate(zip(modules, built, strict=True)):
        if result.error_msg is None:
            info = ms.arg_info.ArgInfo.from_entry_func(module, remove_preproc=True)
            inputs.append(ms.runner.RunnerInput(result.artifact_path, "cpu", info))
            positions.append(index)
    times: list[float | None] = [None] * len(modules)
    for index, future in zip(positions, runner.run(inputs), strict=True):
        answer = future.result()
        if answer.run_secs:
            times[index] = statistics.mean(float(s) for s in answer.run_secs)
    done = time.perf_counter()
    return {
        "secs": done - started,
        "build_secs": built_at - started,
        "times": times,
        "failed": sum(t is None for t in times),
    }


def farm_pass(system: str, candidates: dict[str, Any]) -> dict[str, Any]:
    from tensorese.measure.config import FarmConfig
    from tensorese.measure.farm import Farm
    from tensorese.measure.timing import TimingConfig
    from tensorese.targets import Target
    from tensorese.tvm_env import import_tvm

    tvm = import_tvm()
    programs = _candidates(tvm, candidates)
    timing = TimingConfig(**SETTINGS) if system == "fixed" else TimingConfig()
    if system == "retime":
        timing = TimingConfig(min_samples=15, max_samples=60, precision=0.003, budget_ms=400)
    limit = SOFTMAX_LIMIT if system == "softmax" else 30.0
    config = FarmConfig(
        timing=timing,
        build_timeout=limit,
        verify="none" if system in ("fixed", "retime") else "best",
    )
    started = time.perf_counter()
    with Farm(Target.from_json(candidates["target"]), config) as farm:
        results = farm.measure(programs)
        done = time.perf_counter()
        drift = farm.drift
    return {
        "secs": done - started,
        "build_secs": sum(m.build_secs for m in results if not math.isnan(m.build_secs)),
        "times": [m.latency if m.status == "ok" else None for m in results],
        "statuses": [m.status.value for m in results],
        "errors": [m.error for m in results],
        "failed": sum(m.status not in ("ok", "censored") for m in results),
        "censored": sum(m.status == "censored" for m in results),
        "verified": sum(bool(m.verification.get("passed")) for m in results),
        "samples": sum(len(m.run_secs) for m in results),
        "drift": drift,
    }


def compile_pass(_: str, candidates: dict[str, Any]) -> dict[str, Any]:
    """What TVM and LLVM alone take, on all cores."""
    from tensorese.tvm_env import import_tvm

    import_tvm()
    from tensorese.measure import build_worker

    build_worker.warm_up("llvm")
    with tempfile.TemporaryDirectory() as folder:
        common = {"target": candidates["target"]}
        jobs = [
            {**common, "job": k, "module": module, "artifact": f"{folder}/{k}"}
            for k, module in enumerate(candidates["modules"])
        ]
        with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
            started = time.perf_counter()
            replies = pool.map(build_worker.build, jobs, chunksize=1)
            secs = time.perf_counter() - started
    return {"secs": secs, "failed": sum(reply["status"] != "ok" for reply in replies)}


def _candidates(tvm: Any, candidates: dict[str, Any]) -> list[Any]:
    from tensorese.identity import workload_of
    from tensorese.measure.candidates import from_module

    workload = workload_of(tvm.ir.load_json(candidates["workload"]))
    chosen = candidates.get("only") or range(len(candidates["modules"]))
    return [from_module(tvm.ir.load_json(candidates["modules"][i]), workload) for i in chosen]


# -- the cases -------------------------------------------------------------------------------


def make_candidates(case: str, n: int, folder: Path) -> int:
    from tensorese.space.sampling import random_schedules
    from tensorese.targets import Target
    from tensorese.tvm_env import import_tvm

    tvm = import_tvm()
    target = Target.parse("host")
    module = workload(tvm, case)
    schedules = random_schedules(module, target, n, seed=1)
    content = {
        "target": target.to_json(),
        "workload": tvm.ir.save_json(module),
        "modules": [tvm.ir.save_json(s.mod) for s in schedules],
    }
    (folder / "candidates.json").write_text(json.dumps(content))
    return len(schedules)


def workload(tvm: Any, case: str) -> Any:
    from tvm.s_tir.meta_schedule.testing import te_workload

    from tensorese.measure.demo import conv2d_module

    if case == "conv2d":
        return conv2d_module()
    if case == "matmul":
        func = tvm.te.create_prim_func(te_workload.matmul(128, 128, 128))
        func = func.with_attr("layout_free_buffers", [1])
    else:
        func = tvm.te.create_prim_func(te_workload.softmax_mn(256, 256))
    return tvm.IRModule({"main": func})


def spawn(system: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--pass", system, "--folder", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"pass {system} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    print(f"  {system:<9} {result['secs']:6.1f} s, {result['failed']} failed", flush=True)
    return result


def compare(case: str, n: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        n = make_candidates(case, n, folder)
        print(f"{case}: {n} candidates, {rounds} interleaved rounds", flush=True)
        passes: dict[str, list[dict[str, Any]]] = {s: [] for s in (*SYSTEMS, "compile")}
        for _ in range(rounds):
            for system in passes:
                passes[system].append(spawn(system, folder))
        retimed = retime(folder, passes["adaptive"][-1]["times"])
    compiled = [p["secs"] for p in passes.pop("compile")]
    rate = {s: n / statistics.median(p["secs"] for p in passes[s]) for s in SYSTEMS}
    half = faster_half([p["times"] for p in passes["stock"]])
    return {
        "candidates": n,
        "rounds": rounds,
        "secs": {s: [p["secs"] for p in passes[s]] for s in SYSTEMS},
        "programs_per_sec": rate,
        "ratio_fixed": rate["fixed"] / rate["stock"],
        "ratio_adaptive": rate["adaptive"] / rate["stock"],
        "compile_secs": compiled,
        "ratio_of_compiling_alone": n / statistics.median(compiled) / rate["stock"],
        "needed": NEEDED[case],
        "failed": {s: [p["failed"] for p in passes[s]] for s in SYSTEMS},
        "censored": [p["censored"] for p in passes["adaptive"]],
        "verified": [p["verified"] for p in passes["adaptive"]],
        "agreement": agreement(passes, half),
        "ten_best_retimed": retimed,
        "times": {s: [p["times"] for p in passes[s]] for s in SYSTEMS},
    }


def faster_half(runs: list[list[float | None]]) -> list[int]:
    """Candidates every stock pass timed, the faster half by their best stock time."""
    timed = {}
    for index, values in enumerate(zip(*runs, strict=True)):
        known = [v for v in values if v is not None]
        if len(known) == len(runs):
            timed[index] = min(known)
    ordered = sorted(timed, key=lambda index: timed[index])
    return ordered[: max(1, len(ordered) // 2)]


def agreement(passes: dict[str, list[dict[str, Any]]], half: list[int]) -> dict[str, Any]:
    """Median and 90th percentile of |log ratio| of times, pass against pass."""
    pairs = {
        "stock_stock": list(itertools.combinations(passes["stock"], 2)),
        "fixed_stock": list(itertools.product(passes["fixed"], passes["stock"])),
        "adaptive_stock": list(itertools.product(passes["adaptive"], passes["stock"])),
        "fixed_fixed": list(itertools.combinations(passes["fixed"], 2)),
        "adaptive_adaptive": list(itertools.combinations(passes["adaptive"], 2)),
    }
    return {name: _spread(each, half) for name, each in pairs.items()}


def _spread(pairs: list[tuple[dict[str, Any], dict[str, Any]]], half: list[int]) -> dict[str, Any]:
    gaps = sorted(
        abs(math.log(a["times"][i] / b["times"][i]))
        for a, b in pairs
        for i in half
        if a["times"][i] and b["times"][i]
    )
    if not gaps:
        return {"median": None, "p90": None, "n": 0}
    p90 = gaps[int(0.9 * (len(gaps) - 1))]
    return {"median": statistics.median(gaps), "p90": p90, "n": len(gaps)}


def retime(folder: Path, times: list[float | None]) -> dict[str, Any]:
    """The ten best of an adaptive pass, timed again together in three interleaved passes."""
    known = {i: t for i, t in enumerate(times) if t}
    best = sorted(known, key=lambda i: known[i])[:10]
    content = json.loads((folder / "candidates.json").read_text())
    (folder / "candidates.json").write_text(json.dumps({**content, "only": best}))
    again = [spawn("retime", folder)["times"] for _ in range(3)]
    gaps = []
    for position, index in enumerate(best):
        now = statistics.median(p[position] for p in again if p[position])
        gaps.append(abs(math.log(known[index] / now)))
    return {"median_gap": statistics.median(gaps), "max_gap": max(gaps), "gaps": gaps}


def softmax(n: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        n = make_candidates("softmax", n, folder)
        print(f"softmax: {n} candidates, {SOFTMAX_LIMIT:g} s of LLVM each at most", flush=True)
        result = spawn("softmax", folder)
    cut = [i for i, status in enumerate(result["statuses"]) if status == "build_timeout"]
    kinds = {s: result["statuses"].count(s) for s in sorted(set(result["statuses"]))}
    best = min((t for t in result["times"] if t), default=None)
    return {"candidates": n, "secs": result["secs"], "statuses": kinds, "cut": cut, "best": best}


# -- the report ------------------------------------------------------------------------------


def show(result: dict[str, Any]) -> None:
    columns = ("stock/s", "fixed/s", "adaptive/s", "fixed x", "adaptive x", "compiling alone x")
    table = Table("case", *columns, "needed")
    ratios = ("ratio_fixed", "ratio_adaptive", "ratio_of_compiling_alone", "needed")
    for case, row in result["cases"].items():
        rates = [f"{row['programs_per_sec'][s]:.2f}" for s in SYSTEMS]
        table.add_row(case, *rates, *(f"{row[name]:.1f}" for name in ratios))
    Console(width=110).print(table)
    for case, row in result["cases"].items():
        differences = ", ".join(
            f"{name.replace('_', '-')} {s['median']:.1%} (p90 {s['p90']:.1%})"
            for name, s in row["agreement"].items()
            if s["median"] is not None
        )
        ten = row["ten_best_retimed"]
        print(f"{case}: times of the faster half differ by {differences}; of the ten best timed")
        print(f"again by {ten['median_gap']:.1%}, at most {ten['max_gap']:.1%}")
    if "softmax" in result:
        print("softmax:", {k: v for k, v in result["softmax"].items() if k != "best"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--case", nargs="+", default=[*NEEDED, "softmax"])
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pass", dest="system", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.system:
        run_pass(args.system, args.folder)
        return 0
    wanted = [case for case in args.case if case in NEEDED]
    cases = {case: compare(case, args.candidates, args.rounds) for case in wanted}
    result: dict[str, Any] = {"settings": SETTINGS, "cases": cases}
    if "softmax" in args.case:
        result["softmax"] = softmax(args.candidates)
    show(result)
    print("written", write_result("measure", result))
    best = [max(r["ratio_fixed"], r["ratio_adaptive"]) / r["needed"] for r in cases.values()]
    return int(any(share < 1 for share in best))


if __name__ == "__main__":
    sys.exit(main())
