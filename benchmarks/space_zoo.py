"""Every sketch of the zoo: covered by integers or not, and the share of FLOPs that is not.

    python benchmarks/space_zoo.py [--kind llvm cuda] [--network resnet18 ...] [--again]

Per network and target the tasks are extracted, each distinct one's space is built, and for every
distinct sketch eight traces of stock MetaSchedule (fresh samples, then its mutators) are encoded to
integers and decoded again. Rows go to runs/space_zoo.jsonl as they are made: a run that was
stopped continues; --again starts anew.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections import defaultdict
from typing import Any

import numpy as np

from common import ROOT, read_rows, write_result
from space_audit import TARGETS
from tensorese.identity import plain
from tensorese.language.metaschedule import cut_tail
from tensorese.space.counting import count
from tensorese.space.replay import SCHEDULE_ERRORS
from tensorese.space.space import TaskSpace, task_space
from tensorese.targets import Target
from tensorese.workloads import Task, load_network, tasks_of
from tensorese.workloads.zoo import ZOO

ROWS = ROOT / "runs" / "space_zoo.jsonl"
TRACES = 8


def stock_traces(space: TaskSpace, sketch: int, n: int) -> list[Any]:
    """Fresh samples of the sketch and their mutants, as stock search would replay them."""
    tvm, referee = space.referee.tvm, space.referee
    mutators = list(referee.context.space_generator.mutator_probs)
    traces: list[Any] = []
    for seed in range(1, 20 * n):
        if len(traces) >= n:
            break
        schedule = tvm.s_tir.Schedule(referee.module, seed=seed)
        trace: Any = tvm.s_tir.schedule.Trace(referee.instructions[sketch], {})
        if traces and seed % 2 and mutators:
            trace = mutators[seed // 2 % len(mutators)].apply(traces[seed % len(traces)]) or trace
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
        except SCHEDULE_ERRORS:
            continue
        traces.append(schedule.trace)
    return traces


def checked(space: TaskSpace, sketch: int) -> dict[str, int]:
    """How many traces there were, came back as they were, and lie inside the space."""
    traces = [plain(trace.as_json()) for trace in stock_traces(space, sketch, TRACES)]
    same = inside = 0
    for trace in traces:
        index, row, constants = space.encode(trace)
        same += index == sketch and space.decode(index, row, constants) == cut_tail(trace)[0]
        decided = space.sketches[sketch]
        array = np.array(row, dtype=np.int64).reshape(1, -1)
        inside += bool(decided.inside(array)[0]) if decided.covered else 0
    return {"traces": len(traces), "same": same, "inside": inside}


def examine(task: Task, kind: str, known: set[str]) -> dict[str, Any]:
    """One distinct task; sketches met before are not checked again."""
    started = time.process_time()
    space = task_space(task.module, Target.from_json(task.target))
    secs = time.process_time() - started
    sketches = []
    for index, decided in enumerate(space.sketches):
        row: dict[str, Any] = {"id": decided.sketch.id, "reason": decided.reason}
        if decided.covered:
            row["rows"] = str(count(decided))
        if decided.sketch.id not in known:
            known.add(decided.sketch.id)
            row |= checked(space, index)
        sketches.append(row)
    return {
        "kind": kind,
        "workload": task.workload.id,
        "operator": task.operator,
        "name": task.name,
        "shapes": ["x".join(map(str, arg.shape)) for arg in task.workload.args],
        "set_up_secs": round(secs, 3),
        "sketches": sketches,
    }


def walk(kinds: list[str], networks: list[str]) -> None:
    rows = read_rows(ROWS)
    done = {(r["kind"], r["network"]) for r in rows if "network" in r}
    seen = {(r["kind"], r["workload"]) for r in rows if "workload" in r}
    known = {s["id"] for r in rows for s in r.get("sketches", ()) if "traces" in s}
    ROWS.parent.mkdir(exist_ok=True)
    with ROWS.open("a") as out:
        for name in networks:
            left = [kind for kind in kinds if (kind, name) not in done]
            network = load_network(f"zoo:{name}") if left else None
            for kind in left:
                started = time.perf_counter()
                tasks = tasks_of(network, TARGETS[kind].to_json()) if network else []
                for task in tasks:
                    if (kind, task.workload.id) not in seen:
                        seen.add((kind, task.workload.id))
                        _write(out, examine(task, kind, known))
                parts = [[t.workload.id, t.weight, t.flops] for t in tasks]
                _write(out, {"kind": kind, "network": name, "tasks": parts})
                print(f"{kind} {name}: {time.perf_counter() - started:.0f} s", flush=True)
            del network
            gc.collect()


def _write(out: Any, row: dict[str, Any]) -> None:
    out.write(json.dumps(row) + "\n")
    out.flush()


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per target and network: the share of FLOPs in sketches drawn by replay, and which."""
    tasks = {(r["kind"], r["workload"]): r for r in rows if "workload" in r}
    networks = []
    for row in (r for r in rows if "network" in r):
        total, replayed = 0.0, 0.0
        uncovered: dict[str, set[str]] = defaultdict(set)
        for workload, weight, flops in row["tasks"]:
            task = tasks[row["kind"], workload]
            reasons = [s["reason"] for s in task["sketches"]]
            part = sum(map(bool, reasons)) / len(reasons)
            total += weight * flops
            replayed += weight * flops * part
            for reason in filter(None, reasons):
                uncovered[task["operator"]].add(reason)
        networks.append(
            {
                "kind": row["kind"],
                "network": row["network"],
                "tasks": len(row["tasks"]),
                "flops": total,
                "replayed_flops": replayed,
                "share": replayed / total,
                "uncovered": {operator: sorted(why) for operator, why in uncovered.items()},
            }
        )
    return networks


def report(rows: list[dict[str, Any]]) -> dict[str, Any]:
    each = summary(rows)
    totals = {}
    for kind in sorted({r["kind"] for r in each}):
        mine = [r for r in each if r["kind"] == kind]
        sketches: dict[str, dict[str, Any]] = {}
        for row in rows:
            if "sketches" in row and row["kind"] == kind:
                sketches |= {s["id"]: s for s in row["sketches"] if "traces" in s}
        totals[kind] = {
            "distinct_tasks": sum(r["kind"] == kind and "workload" in r for r in rows),
            "distinct_sketches": len(sketches),
            "traces": sum(s["traces"] for s in sketches.values()),
            "decoded_to_themselves": sum(s["same"] for s in sketches.values()),
            "inside": sum(s["inside"] for s in sketches.values()),
            "covered_traces": sum(s["traces"] for s in sketches.values() if not s["reason"]),
            "replayed_share": sum(r["replayed_flops"] for r in mine)
            / sum(r["flops"] for r in mine),
        }
    return {"totals": totals, "networks": each}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kind", nargs="+", default=["llvm", "cuda"], choices=list(TARGETS))
    parser.add_argument("--network", nargs="+", default=list(ZOO), choices=list(ZOO))
    parser.add_argument("--again", action="store_true", help="forget the rows of earlier runs")
    args = parser.parse_args()
    if args.again:
        ROWS.unlink(missing_ok=True)
    walk(args.kind, args.network)
    result = report(read_rows(ROWS))
    for row in result["networks"]:
        print(f"{row['kind']} {row['network']}: {row['share']:.2%} replayed {row['uncovered']}")
    print(json.dumps(result["totals"], indent=1))
    print("written", write_result("space_zoo", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
