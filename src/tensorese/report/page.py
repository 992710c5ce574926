"""The report's HTML: one function a section; a section with nothing to show says so."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tensorese.report import svg
from tensorese.report.gather import Point, Report, TaskReport
from tensorese.report.in_place import in_place
from tensorese.report.style import CSS

_DOTS = 1500
_PHASES = ("measure", "propose", "materialise", "space", "learn")


def page(report: Report) -> str:
    name = escape(str(report.head.get("network", "network")))
    sections = [
        _head(report),
        _end_to_end(report),
        in_place(report),
        _progress(report),
        _tasks(report),
        _failures(report),
        _predicted(report),
        _phases(report),
        _details(report),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}: tuning report</title><style>{CSS}</style></head><body>"
        f"{''.join(sections)}</body></html>\n"
    )


def _ms(secs: float) -> str:
    return f"{secs * 1e3:.4g} ms" if math.isfinite(secs) else "-"


def _fixed(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def _clock(secs: Any) -> str:
    if not isinstance(secs, int | float):
        return "-"
    minutes, rest = divmod(round(secs), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _latencies(report: Report) -> dict[str, float]:
    """The newest comparison: `bench` where it was run, else the certificate's."""
    rows = report.bench.get("latency") or report.certificate.get("latency") or {}
    return {str(name): float(row["latency"]) for name, row in rows.items()}


def _head(report: Report) -> str:
    head, latency = report.head, _latencies(report)
    best = latency.get("tuned", math.nan)
    tiles = [
        (
            "end to end" if math.isfinite(best) else "sum of tasks",
            _ms(best if math.isfinite(best) else report.sum_of_tasks),
        ),
        *(
            (f"the speed of {name}", f"{latency[name] / best:.2f}x")
            for name in ("untuned", "torch", "onnxruntime")
            if name in latency and math.isfinite(best)
        ),
        ("trials", f"{report.trials}"),
        ("tuning time", _clock(head.get("seconds"))),
    ]
    made = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in tiles
    )
    state = str(head.get("state", "unknown"))
    states = {"running": "still running, or stopped without warning", "interrupted": "interrupted"}
    line = f"{head.get('model', '')} on {head.get('platform', '')}, {states.get(state, state)}"
    title = escape(str(head.get("network", "network")))
    return f'<h1>{title}</h1><p>{escape(line)}</p><div class="tiles">{made}</div>'


def _end_to_end(report: Report) -> str:
    latency = _latencies(report)
    if not latency and report.certificate:
        checks = f"{_unmeasured(report)}{_verified(report)}"
        return (
            f"<h2>End to end</h2>{checks}<p>The library was not timed: "
            "<code>tensorese bench</code> does, where it runs.</p>"
        )
    if not latency:
        return (
            "<h2>End to end</h2><p>Not compiled yet: <code>tensorese compile</code> builds, "
            "verifies and times the library.</p>"
        )
    rows = dict(latency)
    total = report.sum_of_tasks
    if report.certificate.get("shapes"):  # the chart is of one shape, the tasks are of all
        total = report.certificate.get("explanation", {}).get("sum_of_tasks") or math.nan
    if math.isfinite(total):
        rows["sum of tasks"] = total
    shown = sorted(rows.items(), key=lambda item: item[1])
    others = [value for name, value in rows.items() if name != "untuned"]
    made = [
        svg.Bar(name=name, value=value, label=_ms(value), kind="ours" if name == "tuned" else "bar")
        for name, value in shown
    ]
    chart = svg.bars(made, title="latency of each system", cap=1.5 * max(others, default=math.inf))
    return (
        f"<h2>End to end</h2>{_unmeasured(report)}{_shapes(report)}{chart}{_verified(report)}"
        f"{_explanation(report)}"
    )


def _shapes(report: Report) -> str:
    """Every shape of the library; what follows is of the last."""
    shapes = (report.bench or report.certificate).get("shapes", [])
    if not shapes:
        return ""
    lines = []
    for one in shapes:
        times = (f"{n} {_ms(float(row['latency']))}" for n, row in one["latency"].items())
        lines.append(f"{one['shape']}: {', '.join(times)}")
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        f"<p>One library for {len(shapes)} shapes:</p><ul>{listed}</ul>"
        f"<p>What follows is of {escape(str(shapes[-1]['shape']))}.</p>"
    )


def _unmeasured(report: Report) -> str:
    """That nothing was timed to choose programs, and for which platform the model speaks."""
    chosen = report.certificate.get("unmeasured")
    if not chosen:
        return ""
    line = (
        f"Nothing was timed to choose {len(chosen['programs'])} of the programs: the model that "
        f"chose them speaks for {chosen['judged_for']}, the library is for "
        f"{report.certificate.get('platform', '')}."
    )
    return f"<p>{escape(line)}</p>"


def _verified(report: Report) -> str:
    verification = report.certificate.get("verification", {})
    if verification.get("skipped"):
        return f"<p>Outputs were not verified: {escape(str(verification['skipped']))}.</p>"
    checks = verification.get("against", {})
    verified = [f"{n} ({v['max_error']:.1e})" for n, v in checks.items() if v.get("passed")]
    return f"<p>Outputs verified against {escape(', '.join(verified))}.</p>" if verified else ""


def _explanation(report: Report) -> str:
    explanation = report.bench.get("explanation") or report.certificate.get("explanation") or {}
    gap = explanation.get("gap")
    if not isinstance(gap, int | float):
        return ""
    line = f"End to end is {100 * gap:+.1f} % from the sum of its tasks."
    named = bool(report.bench.get("kernels") or report.certificate.get("kernels"))
    listed = () if named else explanation.get("causes", ())  # else a table of its own follows
    causes = "".join(f"<li>{escape(str(cause))}</li>" for cause in listed)
    return f"<p>{line}</p>" + (f'<ul class="note">{causes}</ul>' if causes else "")


def _progress(report: Report) -> str:
    if not report.by_trials:
        return "<h2>Progress</h2><p>No program has been measured successfully yet.</p>"
    pictures = [
        (report.by_trials, "trials", "Best latency of all tasks together, against trials"),
        (report.by_time, "seconds", "The same against wall-clock time"),
    ]
    made = "".join(
        f"<figure><figcaption>{title}</figcaption>{_curve(points, unit, title)}</figure>"
        for points, unit, title in pictures
    )
    note = "A task not reached yet counts with the first result it got."
    return f'<h2>Progress</h2><div class="pair">{made}</div><p>{note}</p>'


def _curve(points: Sequence[Point], unit: str, title: str) -> str:
    scaled = [(x, y * 1e3) for x, y in points if math.isfinite(x)]
    # The first batches may be ten times slower than the rest: they may run off the top.
    top = min(max(y for _, y in scaled), 4 * min(y for _, y in scaled)) * 1.05
    clipped = [(x, min(y, top)) for x, y in scaled]
    frame = svg.Frame(
        x=(0.0, max(x for x, _ in scaled) or 1.0), y=(0.0, top), x_label=unit, y_label="ms"
    )
    return frame.draw(svg.steps(frame, clipped), title=title)


def _tasks(report: Report) -> str:
    peak = report.peak
    total = report.sum_of_tasks
    columns = ["task", "class", "runs", "ms", "share", "GFLOPS"]
    columns += ["% of peak"] if math.isfinite(peak) else []
    columns += ["trials", "failed", "best over trials"]
    heads = "".join(
        f'<th class="num">{c}</th>'
        if c not in ("task", "class", "best over trials")
        else f"<th>{c}</th>"
        for c in columns
    )
    ordered = sorted(report.tasks, key=lambda t: -(t.weight * t.latency if t.latency > 0 else 0))
    rows = "".join(_task_row(task, total, peak) for task in ordered)
    if not rows:
        return "<h2>Tasks</h2><p>This run has no tasks.</p>"
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<h2>Tasks</h2><div class="scroll">{table}</div>'


def _task_row(task: TaskReport, total: float, peak: float) -> str:
    share = 100 * task.weight * task.latency / total if total else math.nan
    shapes = escape(" ".join(task.shapes))
    cells = [
        f'<td>{escape(task.name)}<div class="small">{shapes}{_origin(task)}</div></td>',
        f"<td>{escape(task.operator)}</td>",
        _cell(str(task.weight)),
        _cell(_fixed(task.latency * 1e3, 3)),
        _cell(f"{_fixed(share)} %"),
        _cell(_fixed(task.gflops)),
    ]
    if math.isfinite(peak):
        cells.append(_cell(_fixed(100 * task.gflops / peak, 0)))
    cells += [_cell(str(task.trials)), _cell(str(task.failures))]
    return f"<tr>{''.join(cells)}<td>{svg.sparkline(task.history)}</td></tr>"


def _origin(task: TaskReport) -> str:
    return f" not timed, from {escape(task.chosen)}" if task.chosen else ""


def _cell(text: str) -> str:
    return f'<td class="num">{escape(text)}</td>'


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
    table = (
        f"<details><summary>Most frequent message of each</summary><table>{texts}</table></details>"
    )
    note = "<p>Censored programs ran, but were cut short for being far slower than the best.</p>"
    censored = any(name == "censored" for name, _, _ in report.failures)
    return f"<h2>Failures</h2>{chart}{note if censored else ''}{table if texts else ''}"


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
    agreement = f"Mean rank correlation inside a batch: {report.agreement:.2f}."
    return (
        f'<h2>Predicted against measured</h2><div class="pair"><figure>{chart}</figure></div>'
        f"<p>{agreement if math.isfinite(report.agreement) else ''}</p>"
    )


def _phases(report: Report) -> str:
    if not report.phases:
        return ""
    order = sorted(report.phases, key=lambda p: _PHASES.index(p) if p in _PHASES else 9)
    parts = [(phase, report.phases[phase]) for phase in order]
    spent, wall = sum(report.phases.values()), report.head.get("seconds")
    note = ""
    if isinstance(wall, int | float) and wall > spent:
        parts.append(("other", wall - spent))
    elif isinstance(wall, int | float):
        note = f"<p>Phases overlap: together {_clock(spent)} in {_clock(wall)}.</p>"
    key = "".join(
        f'<span><i class="s{i % 6}"></i>{escape(name)} {_clock(secs)}</span>'
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
