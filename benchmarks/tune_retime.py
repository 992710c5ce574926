"""The winners of both systems timed together, in turns, by one harness: the farm's strict timing.

Each system's own number comes from its own timer on its own minute; only these are compared.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from common import provenance, read_rows


def retime(chosen: Any, path: Path, rounds: int, trials: int) -> None:
    """Adds one row to the file of runs, in place of the set's former one."""
    from tensorese.measure.tuning_farm import TuningFarm
    from tensorese.targets import Target
    from tune_vs_metaschedule import machine, replace_rows, runs_of

    here = machine(chosen.target)
    target = Target.parse(chosen.target)
    raced: dict[str, Any] = {}
    rows = runs_of(path)
    with TuningFarm(target, platform=target.platform()) as farm:
        for name, task in chosen.tasks.items():
            mine = [r for r in rows if r["task"] == name and all(r[k] == here[k] for k in here)]
            mine = [r for r in mine if r["trials"] == trials or r["system"] != "ours"]
            if "stock" not in {r["system"] for r in mine} or len(mine) < 2:
                continue
            named = {f"{r['system']}-{r['trials']}-{r['seed']}": r for r in mine}
            raced[name] = race(farm, task, named, rounds)
            shown = {who: f"{entry['latency'] * 1e3:.4f} ms" for who, entry in raced[name].items()}
            print(f"{name}: {shown}", flush=True)
    about = {key: value for key, value in provenance().items() if key in ("date", "commit")}
    kept = [row for row in read_rows(path) if row.get("retimed") != chosen.name]
    replace_rows(path, [*kept, {"retimed": chosen.name, "tasks": raced, "where": here, **about}])


def race(farm: Any, task: Any, rows: dict[str, dict[str, Any]], rounds: int) -> dict[str, Any]:
    """By name, each the winner of a row: its latency in turns with the others'."""
    module, names = task.module(), list(rows)
    candidates = [_candidate(module, row) for row in rows.values()]
    turns: dict[str, list[float]] = {name: [] for name in names}
    verdicts: dict[str, bool] = {}
    for _ in range(rounds):
        for name, measurement in zip(names, farm.measure(candidates), strict=True):
            turns[name].append(measurement.latency)
            verdicts[name] = bool(measurement.verification.get("passed"))
            if measurement.error:
                raise SystemExit(f"{task.name} {name}: {measurement.status} {measurement.error}")
    return {
        name: {"latency": statistics.median(times), "turns": times, "verified": verdicts[name]}
        for name, times in turns.items()
    }


def _candidate(module: Any, row: dict[str, Any]) -> Any:
    """Both kinds go in as scheduled modules, built by the same builder."""
    from tensorese.identity import workload_of
    from tensorese.measure.base import FINALIST, Candidate
    from tensorese.measure.candidates import from_module
    from tensorese.records.nouns import Program, Sketch
    from tensorese.tvm_env import import_tvm

    tvm = import_tvm()
    if row["system"] == "stock":
        from tvm.s_tir import meta_schedule as ms

        workload = ms.database.Workload(module)
        record = ms.database.TuningRecord.from_json(row["winner"], workload)
        schedule = tvm.s_tir.Schedule(module)
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
        return from_module(schedule.mod, workload_of(module), origin=FINALIST)
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
