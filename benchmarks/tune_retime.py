"""The winners of both systems timed together, in turns, by one harness: the farm's strict timing.

Each system's own number comes from its own timer on its own minute; only these are compared.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from common import provenance
from tune_subgraphs import SUBGRAPHS

RETIMED = "tune_vs_metaschedule_retimed.json"


def retime(
    out: Path, rows: list[dict[str, Any]], here: dict[str, str], trials: int, rounds: int
) -> None:
    from tensorese.measure.tuning_farm import TuningFarm
    from tensorese.targets import parse_target, platform_of

    target = parse_target("host")
    found: dict[str, Any] = {}
    with TuningFarm(target, platform=platform_of(target)) as farm:
        for task in SUBGRAPHS:
            mine = [r for r in rows if r["task"] == task and all(r[k] == here[k] for k in here)]
            mine = [r for r in mine if r["trials"] == trials or r["system"] != "ours"]
            if not {"ours", "stock"} <= {r["system"] for r in mine}:
                continue
            found[task] = _race(farm, task, target, mine, rounds)
            said = {name: f"{entry['latency'] * 1e3:.4f} ms" for name, entry in found[task].items()}
            print(f"{task}: {said}", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / RETIMED).write_text(
        json.dumps({"tasks": found, **here, **provenance()}, indent=1) + "\n"
    )


def _race(
    farm: Any, task: str, target: str, rows: list[dict[str, Any]], rounds: int
) -> dict[str, Any]:
    module = SUBGRAPHS[task].module()
    names = [f"{r['system']}-{r['trials']}-{r['seed']}" for r in rows]
    candidates = [_candidate(module, target, row) for row in rows]
    turns: dict[str, list[float]] = {name: [] for name in names}
    verdicts: dict[str, bool] = {}
    for _ in range(rounds):
        for name, measurement in zip(names, farm.measure(candidates), strict=True):
            turns[name].append(measurement.latency)
            verdicts[name] = bool(measurement.verification.get("passed"))
            if measurement.error:
                raise SystemExit(f"{task} {name}: {measurement.status} {measurement.error}")
    return {
        name: {
            "latency": statistics.median(times),
            "turns": times,
            "verified": verdicts[name],
        }
        for name, times in turns.items()
    }


def _candidate(module: Any, target: str, row: dict[str, Any]) -> Any:
    """Both kinds go in as scheduled modules, built by the same builder."""
    from tensorese.measure.tuning_farm import FINALIST
    from tensorese.tvm_env import import_tvm

    tvm = import_tvm()
    if row["system"] == "stock":
        from tvm.s_tir import meta_schedule as ms

        workload = ms.database.Workload(module)
        record = ms.database.TuningRecord.from_json(row["winner"], workload)
        trace = record.trace
        schedule = tvm.s_tir.Schedule(module)
        trace.apply_to_schedule(schedule, remove_postproc=False)
        return _of_module(module, schedule.mod, FINALIST)
    from tensorese.identity import workload_of
    from tensorese.measure.base import Candidate
    from tensorese.records.nouns import Program, Sketch

    winner = row["winner"]
    sketch = Sketch(
        dialect=winner["sketch"]["dialect"],
        body=winner["sketch"]["body"],
        slots=tuple((int(a), int(b)) for a, b in winner["sketch"]["slots"]),
    )
    program = Program(
        workload=workload_of(module),
        sketch=sketch,
        decisions=tuple(winner["decisions"]),
        tail=winner["tail"],
    )
    return Candidate(program=program, origin=FINALIST)


def _of_module(module: Any, scheduled: Any, origin: str) -> Any:
    from tensorese.identity import workload_of
    from tensorese.measure.candidates import from_module

    return from_module(scheduled, workload_of(module), origin=origin)
