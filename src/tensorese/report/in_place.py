"""The library's kernels as they run in the network, beside what their tasks were measured at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tensorese.report.gather import Report, TaskReport
from tensorese.report.tables import table
from tensorese.report.text import breakable, decimals

_SHOWN = 12
_FIXED = ("winograd_", "attention")
"""In the names of kernels whose program is fixed: nothing about them is tuned."""
_COLUMNS = ("kernel", "class", "calls", "in place, ms", "alone, ms", "slower by, ms", "share")


def in_place(report: Report) -> str:
    """Which operators make the network slower than the sum of its tasks; empty without a profile.

    Kernels come by how much they add, then by their time; what is left over is between them.
    """
    source = report.bench if report.bench.get("kernels") else report.certificate
    rows: Sequence[Mapping[str, Any]] = source.get("kernels") or ()
    explanation: Mapping[str, Any] = source.get("explanation") or {}
    if not rows:
        return ""
    total = sum(float(row["secs"]) for row in rows)
    tasks = {task.workload: task for task in report.tasks}
    ordered = sorted(rows, key=lambda row: (-_excess(row), -float(row["secs"])))
    cells = [_row(row, tasks.get(str(row.get("workload"))), total) for row in ordered[:_SHOWN]]
    paragraph = f"<p>{escape(_summary(rows, explanation, len(ordered)))}</p>"
    return f"<h2>Kernels in place</h2>{paragraph}{table(_COLUMNS, cells)}"


def _summary(
    rows: Sequence[Mapping[str, Any]], explanation: Mapping[str, Any], kernels: int
) -> str:
    between = explanation.get("between_kernels")
    known = [row for row in rows if row.get("promised") is not None]
    slower = sum(max(0.0, _excess(row)) for row in known)
    parts = [f"{kernels} kernels, the {min(kernels, _SHOWN)} that add most to the sum of tasks."]
    parts.append(f"Slower in place than alone: {slower * 1e3:.3g} ms in all.")
    chosen = [row for row in rows if row.get("origin")]
    if chosen:
        secs = sum(float(row["secs"]) for row in chosen)
        parts.append(f"Chosen without timing: {secs * 1e3:.3g} ms.")
    if len(known) + len(chosen) < kernels:
        untuned = sum(
            float(row["secs"])
            for row in rows
            if row.get("promised") is None and not row.get("origin")
        )
        parts.append(f"Without a tuned program: {untuned * 1e3:.3g} ms.")
    if isinstance(between, int | float) and math.isfinite(between):
        where = "between kernels" if between >= 0 else "gained when nobody watches the kernels"
        parts.append(f"{abs(between) * 1e3:.3g} ms {where}.")
    return " ".join(parts)


def _excess(row: Mapping[str, Any]) -> float:
    promised = row.get("promised")
    return float(row["secs"]) - (float(promised) if promised is not None else 0.0)


def _row(row: Mapping[str, Any], task: TaskReport | None, total: float) -> list[str]:
    called = task.name if task else str(row["kernel"])
    shapes = " ".join(task.shapes) if task else ""
    alone, places = row.get("promised"), decimals(total)
    fixed = "fixed" if any(name in called for name in _FIXED) else "untuned"
    without = "not timed" if row.get("origin") else fixed
    return [
        f'{breakable(called)}<div class="small">{escape(shapes)}</div>',
        breakable(task.operator if task else "-"),
        escape(str(row["calls"])),
        f"{float(row['secs']) * 1e3:.{places}f}",
        f"{float(alone) * 1e3:.{places}f}" if alone is not None else without,
        f"{_excess(row) * 1e3:+.{places}f}" if alone is not None else "-",
        f"{100 * float(row['secs']) / total:.1f} %" if total else "-",
    ]
