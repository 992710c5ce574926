"""The tuned library beside other systems: who they are, how fast, how steadily, who is absent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tensorese.report import svg
from tensorese.report.gather import Report
from tensorese.report.tables import table
from tensorese.report.text import ms

OURS = ("tuned", "unpacked", "untuned", "sum of tasks")
"""What is no rival: this run's library in several forms, and what its kernels add up to."""


def latencies(report: Report) -> dict[str, float]:
    rows = report.compared.get("latency") or {}
    return {str(name): float(row["latency"]) for name, row in rows.items()}


def rivals(report: Report) -> list[tuple[str, float]]:
    """Other systems, the fastest first."""
    named = [(name, secs) for name, secs in latencies(report).items() if name not in OURS]
    return sorted(named, key=lambda item: item[1])


def end_to_end(report: Report) -> str:
    latency = latencies(report)
    before = f"<h2>End to end</h2>{_unmeasured(report)}{_known(report)}{_elsewhere(report)}"
    if latency:
        checks = f"{_chart(report, latency)}{_notes(report)}{_verified(report)}"
        return f"{before}{_shapes(report)}{checks}{_explanation(report)}"
    if report.certificate:
        return (
            f"{before}{_verified(report)}<p>The library was not timed: "
            "<code>tensorese bench</code> does, where it runs.</p>"
        )
    who = "the run ends with it, or" if report.head.get("state") == "running" else ""
    return (
        f"<h2>End to end</h2><p>Not compiled yet: {who} <code>tensorese compile</code> builds, "
        "verifies and times the library.</p>"
    )


def _chart(report: Report, latency: Mapping[str, float]) -> str:
    """The library and its rivals by speed; below them what explains it."""
    ours = [name for name in OURS[1:] if name in latency]
    systems = sorted(set(latency) - set(ours), key=lambda name: latency[name])
    values = dict(latency)
    total = report.sum_of_tasks
    if report.compared.get("shapes"):  # the chart is of one shape, the tasks are of all
        total = (report.compared.get("explanation") or {}).get("sum_of_tasks") or math.nan
    if math.isfinite(total):
        values["sum of tasks"] = total
        ours.append("sum of tasks")
    shown = [_bar(name, values, report.compared.get("latency") or {}) for name in [*systems, *ours]]
    return svg.bars(shown, title="latency of each system", cap=_cap(values))


def _cap(values: Mapping[str, float]) -> float:
    """What is far slower is cut: the library and its best rival must be told apart."""
    near = [secs for name, secs in values.items() if name != "untuned"]
    fast = [secs for name, secs in values.items() if name not in OURS[1:]]
    best = sorted(fast)[:2]
    return min(1.5 * max(near, default=math.inf), 5 * max(best, default=math.inf))


def _bar(name: str, values: Mapping[str, float], rows: Mapping[str, Any]) -> svg.Bar:
    secs, tuned = values[name], values.get("tuned", math.nan)
    rounds: Sequence[float] = rows.get(name, {}).get("rounds") or ()
    notes = []
    if len(rounds) > 1:
        notes.append(f"±{50 * (max(rounds) - min(rounds)) / secs:.0f} %")
    elif name in rows:
        notes.append("one run")
    if name not in ("tuned", "sum of tasks") and math.isfinite(tuned):
        notes.append(f"{secs / tuned:.2f}x")
    kind = "ours" if name == "tuned" else "soft" if name in OURS else "bar"
    spread = (min(rounds), max(rounds)) if len(rounds) > 1 else None
    return svg.Bar(
        name=name, value=secs, label=ms(secs), kind=kind, spread=spread, note=", ".join(notes)
    )


def _notes(report: Report) -> str:
    """How to read the bars; who is absent and why; whether the machine was disturbed."""
    lines = ["One call, the median of several rounds; 2x is twice as long as the tuned library."]
    absent: Mapping[str, Any] = report.compared.get("absent") or {}
    lines += [f"{name} is not here: {why}" for name, why in absent.items()]
    disturbed: Sequence[Any] = report.compared.get("disturbed") or ()
    lines += [f"The machine was disturbed, these times are no measure: {why}" for why in disturbed]
    return "".join(f"<p>{escape(str(line))}</p>" for line in lines)


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


def _known(report: Report) -> str:
    """What earlier runs had found, where the certificate counts it."""
    known: Sequence[Mapping[str, Any]] = list(report.certificate.get("known", {}).values())
    if not known:
        return ""
    kept, trials = sum(bool(row.get("found_by")) for row in known), sum(r["trials"] for r in known)
    return (
        f"<p>{len(known)} tasks were known from {trials:,} trials of earlier runs; {kept} of their "
        "programs are in the library.</p>"
    )


def _elsewhere(report: Report) -> str:
    device = report.certificate.get("device")
    return f"<p>Programs were timed on {escape(str(device))}.</p>" if device else ""


def _shapes(report: Report) -> str:
    """Every shape of a library of several; what follows is of the last."""
    shapes: Sequence[Mapping[str, Any]] = report.compared.get("shapes") or ()
    if not shapes:
        return ""
    systems = sorted({name for one in shapes for name in one.get("latency", ())}, key=_place)
    rows = []
    for one in shapes:
        times = {name: float(row["latency"]) for name, row in one.get("latency", {}).items()}
        cells = (ms(times.get(name, math.nan)) for name in systems)
        rows.append([escape(str(one["shape"])), *cells])
    last = escape(str(shapes[-1]["shape"]))
    return (
        f"<p>One library for {len(shapes)} shapes:</p>{table(('shape', *systems), rows)}"
        f"<p>What follows is of {last}.</p>"
    )


def _place(system: str) -> tuple[int, str]:
    """The library first, then its rivals, then its other forms."""
    return (0 if system == "tuned" else 2 if system in OURS else 1, system)


def _verified(report: Report) -> str:
    verification = report.certificate.get("verification", {})
    if verification.get("skipped"):
        return f"<p>Outputs were not verified: {escape(str(verification['skipped']))}.</p>"
    checks = verification.get("against", {})
    verified = [f"{n} ({v['max_error']:.1e})" for n, v in checks.items() if v.get("passed")]
    return f"<p>Outputs verified against {escape(', '.join(verified))}.</p>" if verified else ""


def _explanation(report: Report) -> str:
    explanation = report.compared.get("explanation") or report.certificate.get("explanation") or {}
    gap = explanation.get("gap")
    if not isinstance(gap, int | float):
        return ""
    line = f"End to end is {100 * gap:+.1f} % from the sum of its tasks."
    named = bool(report.bench.get("kernels") or report.certificate.get("kernels"))
    listed = () if named else explanation.get("causes", ())  # else a table of its own follows
    causes = "".join(f"<li>{escape(str(cause))}</li>" for cause in listed)
    return f"<p>{line}</p>" + (f'<ul class="note">{causes}</ul>' if causes else "")
