"""The run as one self-contained page: the curve of the weighted sum of best latencies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tensorese.report import svg
from tensorese.report.style import CSS

Point = tuple[float, float]


def curve(rounds: Sequence[Mapping[str, Any]], weights: Mapping[str, float]) -> list[Point]:
    """Trials and the sum after each round, over all tasks that have a valid program at the end.

    A task counts with its first result before it has one: the curve never rises for a new task.
    """
    first: dict[str, float] = {}
    for line in rounds:
        for task, secs in line["best"].items():
            first.setdefault(task, secs)
    return [
        (float(line["trials"]), sum(weights[t] * line["best"].get(t, s) for t, s in first.items()))
        for line in rounds
    ]


def page(head: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> str:
    title = f"{len(head['tasks'])} tasks on {escape(str(head['platform']))}"
    sections = [_head(title, head, rounds)]
    if rounds:
        sections += [_chart(head, rounds), _rounds(rounds), _tasks(head, rounds)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}: rounds</title><style>{CSS}</style></head><body>"
        f"{''.join(sections)}</body></html>\n"
    )


def _head(title: str, head: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> str:
    tiles = [("rounds", str(len(rounds)))]
    if rounds:
        points = curve(rounds, _weights(head))
        tiles += [
            ("sum of tasks", _ms(points[-1][1])),
            ("the first round's over it", f"{points[0][1] / points[-1][1]:.2f}x"),
            ("trials", f"{rounds[-1]['trials']:,}"),
        ]
    made = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in tiles
    )
    state = f"{head.get('state', '')}: {head.get('reason', '')}".strip(": ")
    line = f"base model {head['model']}, {state}"
    return f'<h1>{title}</h1><p>{escape(line)}</p><div class="tiles">{made}</div>'


def _chart(head: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> str:
    points = [(trials, secs * 1e3) for trials, secs in curve(rounds, _weights(head))]
    if not points or points[-1][1] <= 0:
        return ""
    frame = svg.Frame(
        x=(0.0, points[-1][0]),
        y=(0.0, max(secs for _, secs in points)),
        x_label="trials",
        y_label="ms",
    )
    drawn = frame.draw(
        svg.steps(frame, points), svg.dots(frame, points), title="sum of best latencies over trials"
    )
    return (
        "<h2>Sum of best latencies</h2><figure><figcaption>Weighted by how often the networks run "
        f"each task; tasks count with their first result before it.</figcaption>{drawn}</figure>"
    )


def _rounds(rounds: Sequence[Mapping[str, Any]]) -> str:
    cells = [
        [
            str(line["round"]),
            f"{line['trials']:,}",
            f"{line['secs']:.0f}",
            str(line["tasks"]),
            _ms(line["sum"]),
            "-" if line["gain"] is None else f"{100 * line['gain']:.1f} %",
            f"{line['model']} ({line['learnt']})",
            ", ".join(f"{n} {status}" for status, n in line["statuses"].items()),
        ]
        for line in rounds
    ]
    names = ["round", "trials", "seconds", "tasks", "sum", "gain", "model (rounds learnt)", "ended"]
    return f"<h2>Rounds</h2>{_table(names, cells)}"


def _tasks(head: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> str:
    best = rounds[-1]["best"]
    described = sorted(
        head["tasks"],
        key=lambda task: -task["weight"] * best.get(task["workload"], math.inf),
    )
    cells = []
    for task in described:
        secs = best.get(task["workload"], math.nan)
        points = [
            (float(line["trials"]), line["best"][task["workload"]])
            for line in rounds
            if task["workload"] in line["best"]
        ]
        rate = task["flops"] / secs / 1e9 if secs > 0 else math.nan
        cells.append(
            [
                escape(str(task["name"])),
                f"{task['weight']:g}",
                _ms(secs),
                f"{rate:.1f}" if math.isfinite(rate) else "-",
                svg.sparkline(points),
            ]
        )
    return f"<h2>Tasks</h2>{_table(['task', 'weight', 'best', 'GFLOPS', 'over trials'], cells)}"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML."""
    header = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def _weights(head: Mapping[str, Any]) -> dict[str, float]:
    return {task["workload"]: float(task["weight"]) for task in head["tasks"]}


def _ms(secs: float) -> str:
    return f"{secs * 1e3:.4g} ms" if math.isfinite(secs) else "-"
