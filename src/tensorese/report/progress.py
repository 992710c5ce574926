"""How the network's latency fell, on axes that show it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorese.report import svg
from tensorese.report.gather import Point, Report
from tensorese.report.text import ms

_EARLY = 0.15
"""Of the width: what is slower than the best at that point may leave the chart at its top."""
_LEAST = 0.03
"""The axis spans at least this part of the best latency: noise is not made a mountain."""


def progress(report: Report) -> str:
    if not report.by_trials:
        return "<h2>Progress</h2><p>No program has been measured successfully yet.</p>"
    charts = [_curve(report.by_trials, "trials"), _curve(*_timed(report.by_time))]
    made = "".join(f"<figure>{chart}</figure>" for chart in charts if chart)
    first, last = report.by_trials[0][1], report.by_trials[-1][1]
    total = report.sum_of_tasks
    again = f" ({ms(total)} when timed again at the end)" if abs(total / last - 1) > 1e-3 else ""
    note = (
        f"The best latencies of all tasks, times their runs, together: {ms(first)} at first, "
        f"{ms(last)} after {report.trials:,} trials{again}. A task not reached yet counts with "
        "the first result it got. The axes begin near the best, not at 0, and early results may "
        "lie above them."
    )
    return f'<h2>Progress</h2><p>{note}</p><div class="pair">{made}</div>'


def _timed(points: Sequence[Point]) -> tuple[list[Point], str]:
    known = [point for point in points if math.isfinite(point[0])]
    if known and known[-1][0] > 600:
        return [(secs / 60, y) for secs, y in known], "minutes"
    return known, "seconds"


def _curve(points: Sequence[Point], unit: str) -> str:
    if not points:
        return ""
    scaled = [(x, y * 1e3) for x, y in points]
    end = scaled[-1][0] or 1.0
    frame = svg.Frame(x=(0.0, end), y=span(scaled), x_label=unit, y_label="ms")
    last = svg.dots(frame, scaled[-1:], "last")
    return frame.draw(svg.steps(frame, scaled), last, title=f"best latency against {unit}")


def span(points: Sequence[Point]) -> tuple[float, float]:
    """The latencies that a chart shows: nearly all of its width has nearly all of its height."""
    best, end = min(y for _, y in points), points[-1][0]
    early = [y for x, y in points if x <= points[0][0] + _EARLY * (end - points[0][0])]
    top = max(min(early), best * (1 + _LEAST))
    margin = 0.06 * (top - best)
    return best - margin, top + margin
