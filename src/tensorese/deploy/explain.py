"""Why a network takes longer than its tasks: every kernel as it ran against as it was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorese.deploy.apply import Applied
from tensorese.deploy.folder import TunedRun
from tensorese.workloads.joined_channels import NAME

GAP = 0.10
"""A difference from the sum of tasks that has to be explained."""
_SHOWN = 8


def sum_of_tasks(run: TunedRun) -> float:
    """Weight times best latency, over the tasks that have one."""
    weights = {str(task["workload"]): int(task["weight"]) for task in run.tasks}
    return sum(
        best.latency * weights.get(workload, best.weight)
        for workload, best in run.best.items()
        if best.latency is not None
    )


def kernel_rows(
    profile: Sequence[Mapping[str, Any]], applied: Applied, run: TunedRun
) -> list[dict[str, Any]]:
    """A run's kernels with the time their task promised; `None` for what was never timed, with the
    `origin` of its program where one was chosen all the same."""
    rows = []
    for row in profile:
        name = str(row["kernel"])
        if name.startswith("vm."):
            continue
        workload = applied.tuned.get(name)
        best = run.best.get(workload) if workload else None
        alone = best.latency if best else None
        promised = None if alone is None else alone * int(row["calls"])
        where = {"workload": workload or applied.untuned.get(name), "promised": promised}
        origin = {"origin": best.origin} if best and alone is None else {}
        rows.append({**row, **where, **origin})
    return rows


def explain(
    latency: float,
    rows: Sequence[Mapping[str, Any]],
    run: TunedRun,
    device: float | None = None,
) -> dict[str, Any]:
    """The gap to the sum of tasks and, where it is over a tenth, its largest parts in words.

    `device` are a GPU's own seconds of a call; what they leave is asking for it and waiting.
    """
    promised = sum_of_tasks(run)
    gap = latency / promised - 1 if promised else None
    inside = sum(float(row["secs"]) for row in rows)
    between = (latency if device is None else device) - inside
    watched = bool(rows) or device is None
    explanation: dict[str, Any] = {
        "sum_of_tasks": promised or None,
        "gap": gap,
        "kernels_in_place": inside if watched else None,
        "between_kernels": between if watched else None,
        "causes": [],
    }
    if device is not None:
        explanation |= {"device": device, "asking_and_waiting": latency - device}
    if gap is None or abs(gap) > GAP:
        explanation["causes"] = _causes(latency, rows, between if watched else 0.0, device)
    return explanation


def _causes(
    latency: float, rows: Sequence[Mapping[str, Any]], between: float, device: float | None
) -> list[str]:
    untuned = [row for row in rows if row["promised"] is None]
    tuned = [row for row in rows if row["promised"] is not None]
    parts: list[tuple[float, str]] = [
        (float(row["secs"]), f"{row['kernel']} {_why(row)}: {_ms(row['secs'])}") for row in untuned
    ]
    for row in tuned:
        excess = float(row["secs"]) - float(row["promised"])
        calls = f" in {row['calls']} calls" if row["calls"] > 1 else ""
        cause = (
            f"{row['kernel']} takes {_ms(row['secs'])}{calls}, measured at {_ms(row['promised'])}"
        )
        parts.append((excess, cause))
    # Kernels are slower while they are watched, or when something disturbs the machine just then.
    if between >= 0:
        parts.append((between, f"between the kernels: {_ms(between)}"))
    else:
        parts.append((between, f"kernels took {_ms(-between)} longer while they were watched"))
    if device is not None:
        parts.append((latency - device, f"asking the GPU and waiting: {_ms(latency - device)}"))
    parts.sort(key=lambda part: -abs(part[0]))
    return [cause for size, cause in parts[:_SHOWN] if abs(size) > 0.01 * latency]


def _why(row: Mapping[str, Any]) -> str:
    if row.get("origin"):
        return "has a program that was not timed"
    names = ("winograd_", "attention", NAME)
    is_fixed = any(name in str(row["kernel"]) for name in names)
    return "has a fixed program" if is_fixed else "has no tuned program"


def _ms(secs: Any) -> str:
    return f"{float(secs) * 1e3:.4g} ms"
