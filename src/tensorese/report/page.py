"""The report's HTML: one function a section; a section with nothing to show says so."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from html import escape
from typing import Any

from tensorese.report import svg
from tensorese.report.end_to_end import end_to_end, latencies, rivals
from tensorese.report.gather import Report, TaskReport
from tensorese.report.in_place import in_place
from tensorese.report.legend import legend
from tensorese.report.progress import progress
from tensorese.report.style import CSS
from tensorese.report.tables import table
from tensorese.report.text import breakable, clock, decimals, fixed, ms

_DOTS = 1500
_PHASES = ("measure", "propose", "materialise", "space", "learn")
_RIVALS = 3
"""As many of them have a number of their own at the top."""
_STATES = {"running": "still running, or stopped without warning", "interrupted": "interrupted"}


def page(report: Report) -> str:
    """Everything in one file."""
    return document(report, f"<style>{CSS}</style>")


def document(report: Report, head: str, above: str = "") -> str:
    """`head` says where the styles are; `above` stays when the body is drawn anew."""
    network = escape(str(report.head.get("network", "network")))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{network}: tuning report</title>{head}</head>"
        f"<body>{above}<main>{body(report)}</main></body></html>\n"
    )


def body(report: Report) -> str:
    sections = [
        _head(report),
        end_to_end(report),
        in_place(report),
        progress(report),
        _tasks(report),
        _failures(report),
        _predicted(report),
        _phases(report),
        legend(report, {*latencies(report), "sum of tasks"}),
        _details(report),
    ]
    return "".join(sections)


def _head(report: Report) -> str:
    head, best = report.head, latencies(report).get("tuned", math.nan)
    timed = math.isfinite(best)
    reached = sum(1 for task in report.tasks if task.latency > 0 or task.chosen)
    tiles = [
        ("end to end" if timed else "sum of tasks", ms(best if timed else report.sum_of_tasks)),
        *(
            (f"the speed of {name}", f"{secs / best:.2f}x")
            for name, secs in rivals(report)[:_RIVALS]
            if timed
        ),
        ("tasks with a program", f"{reached} of {len(report.tasks)}"),
        ("trials", f"{report.trials:,}"),
        ("tuning time", clock(report.seconds)),
    ]
    made = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in tiles
    )
    state = str(head.get("state", "unknown"))
    line = f"{head.get('model', '')} on {head.get('platform', '')}, {_STATES.get(state, state)}"
    title = breakable(str(head.get("network", "network")))
    return f'<h1>{title}</h1><p>{escape(line)}</p><div class="tiles">{made}</div>'


def _tasks(report: Report) -> str:
    if not report.tasks:
        return "<h2>Tasks</h2><p>This run has no tasks.</p>"
    peak, total = report.peak, report.sum_of_tasks
    columns = ["task", "class", "runs", "ms", "share", "GFLOPS"]
    columns += ["% of peak"] if math.isfinite(peak) else []
    columns += ["trials", "failed", "best over trials"]
    ordered = sorted(report.tasks, key=lambda t: -(t.weight * t.latency if t.latency > 0 else 0))
    return f"<h2>Tasks</h2>{table(columns, [_task_row(t, total, peak) for t in ordered])}"


def _task_row(task: TaskReport, total: float, peak: float) -> list[str]:
    share = 100 * task.weight * task.latency / total if total else math.nan
    under = escape(" ".join(task.shapes))
    under += f" not timed, from {escape(task.chosen)}" if task.chosen else ""
    return [
        f'{breakable(task.name)}<div class="small">{under}</div>',
        breakable(task.operator or "-"),
        str(task.weight),
        fixed(task.latency * 1e3, decimals(total)),
        fixed(share, 1, " %"),
        fixed(task.gflops),
        *([fixed(100 * task.gflops / peak, 0)] if math.isfinite(peak) else []),
        str(task.trials),
        str(task.failures),
        svg.sparkline(task.history),
    ]


def _failures(report: Report) -> str:
    if not report.failures:
        return "<h2>Failures</h2><p>None.</p>"
    rows = [
        svg.Bar(name=name, value=n, label=str(n), kind="bar" if name == "censored" else "bad")
        for name, n, _ in report.failures
    ]
    chart = svg.bars(rows, title="failures by class")
    texts = "".join(
        f'<tr><td>{escape(name)}</td><td class="small">{escape(text)}</td></tr>'
        for name, _, text in report.failures
        if text
    )
    folded = (
        f"<details><summary>Most frequent message of each</summary><table>{texts}</table></details>"
    )
    return f"<h2>Failures</h2>{chart}{folded if texts else ''}"


def _predicted(report: Report) -> str:
    if not report.predicted:
        return "<h2>Predicted against measured</h2><p>No model scored what was measured.</p>"
    every = max(1, math.ceil(len(report.predicted) / _DOTS))
    frame = svg.Frame(
        x=(0.0, 1.0),
        y=(0.0, 1.0),
        x_label="place of the score in its batch (1: predicted fastest)",
        y_label="speed, of its task's best",
    )
    chart = frame.draw(svg.dots(frame, report.predicted[::every]), title="predicted and measured")
    agreement = (
        f"Mean rank correlation of scores and speeds inside a batch: {report.agreement:.2f} "
        "(1: always in the right order, 0: chance)."
    )
    return (
        f"<h2>Predicted against measured</h2>"
        f"<p>{agreement if math.isfinite(report.agreement) else ''}</p>"
        f'<div class="pair"><figure>{chart}</figure></div>'
    )


def _phases(report: Report) -> str:
    if not report.phases:
        return ""
    order = sorted(report.phases, key=lambda p: _PHASES.index(p) if p in _PHASES else 9)
    parts = [(phase, report.phases[phase]) for phase in order]
    spent, wall = sum(report.phases.values()), report.seconds
    note = ""
    if wall > spent:
        parts.append(("other", wall - spent))
    elif math.isfinite(wall):
        note = f"<p>Phases overlap: together {clock(spent)} in {clock(wall)}.</p>"
    key = "".join(
        f'<span><i class="s{i % 6}"></i>{escape(name)} {clock(secs)}</span>'
        for i, (name, secs) in enumerate(parts)
    )
    chart = svg.stacked(parts, title="time by phase")
    return f'<h2>Time by phase</h2>{chart}<div class="key">{key}</div>{note}'


def _details(report: Report) -> str:
    shown: Mapping[str, Any] = {
        key: report.head.get(key) for key in ("target", "config", "environment", "fingerprint")
    }
    text = escape(json.dumps(shown, indent=1, default=str))
    folded = f"<summary>Configuration and environment</summary><pre>{text}</pre>"
    return f"<h2>Settings</h2><details>{folded}</details>"
