"""Programs a TLM writes for test tasks: accepted by TVM, distinct, how many a second.

    python benchmarks/tlm_generate.py [--kind llvm cuda] [--programs 10000] [--tasks 30]

Writes so many programs over tasks of networks that no model was trained on, spread over all
sketches as the model chooses, and has TVM replay and judge every one of them: on a GPU's target
too, its verdict needs no GPU. Without `--model` what ships. One current file a machine; each kind
keeps its section.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT, provenance, result_file, write_result
from tensorese.collect.tasklist import ListedTask, load_tasks
from tensorese.records.nouns import Platform
from tensorese.search.contracts import TaskState
from tensorese.search.proposers.tlm import TLMProposer, writer_for
from tensorese.space.counting import count
from tensorese.space.materialise import materialise
from tensorese.space.space import task_space
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

H200 = (
    '{"arch":"sm_90","kind":"cuda","max_num_threads":1024,"max_shared_memory_per_block":49152,'
    '"max_threads_per_block":1024,"registers_per_block":65536,"thread_warp_size":32}'
)
SCRIPT = "tlm_generate"
DRAWS = 4
COUNTS = (
    *("drawn", "dead", "illegal", "distinct_at_once", "possible_at_once"),
    *("programs", "accepted", "seconds"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", nargs="*", choices=("llvm", "cuda"), default=["llvm", "cuda"])
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=30)
    parser.add_argument("--model", default="", help="A folder; what ships if absent.")
    options = parser.parse_args()
    path = result_file(SCRIPT)
    known = json.loads(path.read_text())["kinds"] if path.exists() else {}
    for kind in options.kind:
        target = Target.parse("host" if kind == "llvm" else H200)
        row = generated(target, options.programs, options.tasks, options.model)
        known[kind] = {**row, "date": provenance()["date"]}
        print(f"{kind}: {json.dumps({k: v for k, v in row.items() if k != 'by_task'})}", flush=True)
        write_result(SCRIPT, {"kinds": known})


def chosen_tasks(kind: str, n: int, split: str = "test") -> list[ListedTask]:
    """Tasks with something to decide, every class, drawn once and for all."""
    tasks = [t for t in load_tasks(ROOT / "data" / "tasks.parquet", kind) if t.split == split]
    tasks = sorted((t for t in tasks if t.flops > 0), key=lambda t: t.workload.id)
    order = np.random.default_rng(26).permutation(len(tasks))
    return [tasks[k] for k in order[:n]]


def generated(target: Target, programs: int, n_tasks: int, model: str) -> dict[str, Any]:
    platform = target.platform()
    writer = writer_for(platform, model)
    tasks = chosen_tasks(target.kind, n_tasks)
    each = -(-programs // len(tasks))
    by_task = []
    for task in tasks:
        by_task.append(one_task(task, target, platform, writer, each))
        print(f"{task.name}: {by_task[-1]}", flush=True)
    total = {name: sum(row[name] for row in by_task) for name in COUNTS}
    refused = Counter(text for row in by_task for text in row["refused"])
    return {
        "model": {"folder": Path(model).name or "shipped", "hash": writer.hash},
        "tasks": len(tasks),
        **total,
        "first_draw_distinct": total["distinct_at_once"] / max(1, total["possible_at_once"]),
        "programs_a_second": total["programs"] / total["seconds"],
        "refused": dict(refused),
        "by_task": by_task,
    }


def one_task(
    task: ListedTask, target: Target, platform: Platform, writer: Any, n: int
) -> dict[str, Any]:
    """`n` distinct programs, or as many as a few draws find; what a first draw repeats is said."""
    module = import_tvm(target.kind).ir.load_json(task.workload.module)
    space = task_space(module, target, seed=0)
    state = TaskState(task.workload, space, platform)
    proposer = TLMProposer(model=writer)
    proposer.drawn(state, 1, seed=0)  # what is read once a task
    sketches = sum(s.covered for s in space.sketches)
    programs: dict[tuple[int, tuple[int, ...]], None] = {}
    counts = dict.fromkeys(COUNTS, 0)
    started = time.perf_counter()
    for seed in range(DRAWS):
        at_once = min(512, -(-n // max(1, sketches)))
        for group in proposer.drawn(state, at_once, seed):
            finished = group.rows[np.isfinite(group.scores)]
            unique = np.unique(finished, axis=0)
            legal = unique[state.computed(group.sketch).legal(unique)]
            # As every proposer does: what only TVM can decide is asked at the end.
            legal = legal[space.sketches[group.sketch].legal(legal)]
            counts["drawn"] += len(group.rows)
            counts["dead"] += len(group.rows) - len(finished)
            counts["illegal"] += len(unique) - len(legal)
            if seed == 0:
                counts["distinct_at_once"] += len(unique)
                counts["possible_at_once"] += min(at_once, count(space.sketches[group.sketch]))
            programs |= dict.fromkeys((group.sketch, tuple(row)) for row in legal.tolist())
        if len(programs) >= n:
            break
    counts["seconds"] = time.perf_counter() - started
    kept = list(programs)[:n]
    done = materialise(space, kept, task.workload, verify=True)
    counts |= {"programs": len(kept), "accepted": sum(not one.error for one in done)}
    refused = [one.error[:80] for one in done if one.error]
    return {"task": task.name, "workload": task.workload.id, **counts, "refused": refused}


if __name__ == "__main__":
    main()
