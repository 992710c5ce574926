"""How far `language/cpu_code.py` foretells the machine code that TVM and LLVM make.

    python benchmarks/code_rules.py --tasks 24

Compiles every valid program of some training tasks of data/cpu for its platform, finds the loops
that multiply in the assembly, and compares their vectors and instructions with what the features
say. Nothing is run; the file of read-off numbers is kept and a second run goes on from it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from common import ROOT, add_rows, read_rows, write_result

PLATFORM = "znver4-2c"
WIDTHS = {"z": 16, "y": 8, "x": 4}
MOST_LOOPS = 6
"""Loops of one program that are looked at, those with the most products first."""


def products(line: str) -> int:
    """Multiplications that one instruction does."""
    name = line.split()[0]
    if not name.startswith(("vfmadd", "vfnmadd")):
        return 0
    registers = re.findall(r"%([xyz])mm", line)
    return 1 if name.endswith("ss") else WIDTHS[registers[-1]] if registers else 0


def read_assembly(text: str) -> dict[str, float]:
    """Instructions a product, and lanes, of the loops that multiply; empty where none does."""
    lines, labels, loops = [], {}, []
    for raw in text.splitlines():
        line = raw.strip()
        if re.fullmatch(r"\.L\w+:.*", line):
            labels[line.split(":")[0]] = len(lines)
        elif line and not line.startswith((".", "#")) and not line.endswith(":"):
            lines.append(line)
            target = labels.get(line.split()[-1]) if line[0] == "j" else None
            if target is not None:
                loops.append((target, len(lines)))
    loops.sort(key=lambda loop: loop[1] - loop[0])
    done: dict[tuple[int, int], list[int]] = {}
    for at, line in enumerate(lines):
        if count := products(line):
            inner = next((loop for loop in loops if loop[0] <= at < loop[1]), (0, len(lines)))
            done.setdefault(inner, []).append(count)
    hot = sorted(done.items(), key=lambda item: -sum(item[1]))[:MOST_LOOPS]
    total = sum(sum(counts) for _, counts in hot)
    if not total:
        return {}
    return {
        "instructions": sum(last - first for (first, last), _ in hot) / total,
        "lanes": total / sum(len(counts) for _, counts in hot),
    }


def compile_task(measurements: list[Any]) -> list[dict[str, Any]]:
    from tensorese.measure import build_worker
    from tensorese.measure.jobs import trace_of
    from tensorese.targets import Target
    from tensorese.tvm_env import import_tvm

    tvm = import_tvm("llvm")
    rows = []
    for m in measurements:
        program, target = m.program, m.platform.target
        job = {"module": "", "workload": program.workload.module, "target": target}
        trace = trace_of(program, Target.from_json(target))
        job |= {"trace": trace, "postprocess": not program.tail}
        try:
            module = build_worker.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(
                build_worker.load_scheduled(job)[0]
            )
            library = build_worker.compile_module(module, tvm.target.Target(json.loads(target)))
        except (RuntimeError, ValueError, TypeError):
            continue  # what TVM does not take is not compared
        rows.append({"program": program.id, **read_assembly(library.inspect_source("asm"))})
    return rows


def chosen(count: int) -> list[list[Any]]:
    """The measurements of some training tasks that have tiles, drawn once for all."""
    from lowered_trees import wanted
    from tensorese.features.programs import read_programs
    from tensorese.records.store import Store

    with Store.open(ROOT / "data" / "cpu") as store:
        train = set(read_programs([store], split="train").ids)
    tasks: dict[str, list[Any]] = {}
    for m in wanted(ROOT / "data" / "cpu", PLATFORM):
        if m.program.id in train and re.search("conv|matmul", m.program.workload.operator):
            tasks.setdefault(m.program.workload.id, []).append(m)
    names = sorted(name for name, rows in tasks.items() if len(rows) >= 32)
    random.Random(0).shuffle(names)
    return [tasks[name] for name in names[:count]]


def compiled(tasks: Iterable[list[Any]], kept: Path) -> dict[str, dict[str, float]]:
    rows = read_rows(kept)
    known = {row["program"] for row in rows}
    jobs = [task for task in tasks if not any(m.program.id in known for m in task)]
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=4) as pool:
        for k, programs in enumerate(pool.imap_unordered(compile_task, jobs)):
            rows += programs
            add_rows(kept, programs)
            print(f"task {k + 1} of {len(jobs)}: {len(programs)} programs", flush=True)
    return {row["program"]: row for row in rows if "lanes" in row}


def registers(lanes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Lanes of the smallest register that holds so many; a half-full one is counted whole."""
    return np.where(lanes > 1, np.clip(np.exp2(np.ceil(np.log2(lanes))), 4, 16), 1.0)


def compare(real: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    from tensorese.features.base import physics_rows
    from tensorese.features.cpu import NAMES
    from tensorese.features.programs import read_programs
    from tensorese.records.store import Store

    with Store.open(ROOT / "data" / "cpu") as store:
        programs = read_programs([store], split="train")
    features = physics_rows(programs, "cpu")
    column = {name: features[:, k] for k, name in enumerate(NAMES)}
    tiled = column["tiled"] > 0
    here = np.array([program in real for program in programs.ids]) & tiled
    lanes = np.array([real.get(i, {}).get("lanes", np.nan) for i in programs.ids])
    instructions = np.array([real.get(i, {}).get("instructions", np.nan) for i in programs.ids])
    inlined, own = column["inlined_0"] > 0, column["lanes"] > 0
    even = column["lanes"] % 1 == 0
    kinds = {
        "all": here,
        "own vector, a power of two": here & own & even & ~inlined,
        "own vector, odd": here & own & ~even & ~inlined,
        "LLVM's vector or none": here & ~own & ~inlined,
        "padding inlined": here & inlined,
    }
    rows = []
    for kind, rows_of in kinds.items():
        predicted, log = column["core_cost"][rows_of], np.log2(instructions[rows_of])
        widths = registers(2 ** column["core_lanes"][rows_of])
        rows.append(
            {
                "kind": kind,
                "programs": int(rows_of.sum()),
                "same_lanes": float(np.mean(np.abs(np.log2(lanes[rows_of] / widths)) < 0.6)),
                "correlation": float(np.corrcoef(predicted, log)[0, 1]),
                "unexplained": float(np.std(log - predicted)),
                "of": float(np.std(log)),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--kept", type=Path, default=ROOT / "runs" / "code_rules.jsonl")
    args = parser.parse_args()
    args.kept.parent.mkdir(exist_ok=True)
    rows = compare(compiled(chosen(args.tasks), args.kept))
    print(
        f"{'programs':<28} {'n':>6} {'lanes alike':>11} {'correlation':>11} {'left':>5} {'of':>5}"
    )
    for row in rows:
        figures = f"{row['same_lanes']:11.2f} {row['correlation']:11.2f}"
        left = f"{row['unexplained']:5.2f} {row['of']:5.2f}"
        print(f"{row['kind']:<28} {row['programs']:6d} {figures} {left}")
    write_result("code_rules", {"platform": PLATFORM, "tasks": args.tasks, "rows": rows})


if __name__ == "__main__":
    main()
