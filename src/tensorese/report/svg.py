"""Charts as plain SVG text; colours and fonts come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from tensorese.report.text import breakable

Point = tuple[float, float]
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 14.0, 22.0, 46.0


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers that cover the range."""
    if not high > low:
        return [low]
    raw = (high - low) / wanted
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * f for f in (1, 2, 2.5, 5, 10) if unit * f >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def short(value: float) -> str:
    """`1200`, `0.035`, `1.5M`: what fits on an axis."""
    if value and abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value:.4g}"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The plotting area and its two scales."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float = 520.0
    height: float = 260.0
    x_label: str = ""
    y_label: str = ""
    x_text: Callable[[float], str] = short
    y_text: Callable[[float], str] = short

    def at(self, point: Point) -> Point:
        (x0, x1), (y0, y1) = self.x, self.y
        wide = self.width - _LEFT - _RIGHT
        high = self.height - _TOP - _BOTTOM
        right = (point[0] - x0) / ((x1 - x0) or 1.0) * wide
        up = (point[1] - y0) / ((y1 - y0) or 1.0) * high
        return _LEFT + right, self.height - _BOTTOM - up

    def draw(self, *marks: str, title: str) -> str:
        size = f'viewBox="0 0 {self.width:g} {self.height:g}"'
        label = escape(title, quote=True)
        parts = [f'<svg class="chart" {size} role="img" aria-label="{label}">', *self._axes()]
        return "".join([*parts, *marks, "</svg>"])

    def _axes(self) -> list[str]:
        bottom = self.height - _BOTTOM
        parts = []
        for value in ticks(*self.y):
            _, y = self.at((self.x[0], value))
            parts.append(_line(_LEFT, y, self.width - _RIGHT, y, "grid"))
            parts.append(_text(_LEFT - 6, y + 4, self.y_text(value), "tick end"))
        for value in ticks(*self.x):
            x, _ = self.at((value, self.y[0]))
            parts.append(_line(x, bottom, x, bottom + 4, "axis"))
            parts.append(_text(x, bottom + 18, self.x_text(value), "tick middle"))
        parts.append(_line(_LEFT, bottom, self.width - _RIGHT, bottom, "axis"))
        centre = (_LEFT + self.width - _RIGHT) / 2
        parts.append(_text(centre, self.height - 4, self.x_label, "label middle"))
        parts.append(_text(_LEFT - 6, _TOP - 9, self.y_label, "label start", dx=-50))
        return parts


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str, dx: float = 0.0) -> str:
    return f'<text class="{kind}" x="{x + dx:.1f}" y="{y:.1f}">{escape(text)}</text>'


def steps(frame: Frame, points: Sequence[Point], kind: str = "line") -> str:
    """A best-so-far curve: level until the next improvement; from the top where it begins above."""
    seen = [point for point in points if point[1] <= frame.y[1]]
    if not seen:
        return ""
    begins = (seen[0][0], frame.y[1]) if seen[0] != points[0] else seen[0]
    x, y = frame.at(begins)
    path = [f"M{x:.1f} {y:.1f}"]
    for point in seen:
        x, y = frame.at(point)
        path.append(f"H{x:.1f}V{y:.1f}")
    return f'<path class="{kind}" d="{"".join(path)}"/>'


def dots(frame: Frame, points: Sequence[Point], kind: str = "dot") -> str:
    places = (frame.at(point) for point in points)
    return "".join(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>' for x, y in places)


def sparkline(points: Sequence[Point], width: float = 84.0, height: float = 20.0) -> str:
    """A task's best over its trials, without axes; the lower the better."""
    if len(points) < 2:
        return ""
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    wide, high = (max(xs) - min(xs)) or 1.0, (max(ys) - min(ys)) or 1.0

    def place(point: Point) -> Point:
        x = 1 + (point[0] - min(xs)) / wide * (width - 2)
        return x, height - 2 - (point[1] - min(ys)) / high * (height - 4)

    x, y = place(points[0])
    path = [f"M{x:.1f} {y:.1f}"]
    for point in points[1:]:
        x, y = place(point)
        path.append(f"H{x:.1f}V{y:.1f}")
    box = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    curve = f'<path class="line" d="{"".join(path)}"/>'
    return f'<svg class="spark" {box} aria-hidden="true">{curve}</svg>'


@dataclass(frozen=True, kw_only=True)
class Bar:
    name: str
    value: float
    label: str
    kind: str = "bar"
    spread: tuple[float, float] | None = None
    """Lowest and highest of what `value` is the middle of."""
    note: str = ""
    """Beside the label, softer."""


def bars(rows: Sequence[Bar], *, title: str, cap: float = math.inf) -> str:
    """Horizontal bars with their values written out; longer ones than `cap` are cut and marked.

    Names and values are text of the page, which wraps; only the bars are drawings.
    """
    ends = (max(row.value, (row.spread or (0.0, 0.0))[1]) for row in rows)
    longest = max((min(end, cap) for end in ends), default=0.0) or 1.0
    made = "".join(
        f'<div class="row"><span class="name">{breakable(row.name)}</span>'
        f"{_bar(row, longest, cap)}"
        f'<span class="value">{escape(row.label)}<i>{escape(row.note)}</i></span></div>'
        for row in rows
    )
    return f'<div class="bars" role="group" aria-label="{escape(title, quote=True)}">{made}</div>'


def _bar(row: Bar, longest: float, cap: float) -> str:
    """100 wide whatever the screen: strokes do not scale with it."""
    long = max(min(row.value, cap) / longest * 100, 0.3)
    marks = [f'<rect class="{row.kind}" x="0" y="2" width="{long:.2f}" height="16"/>']
    if row.value > cap:
        marks.append(f'<path class="cut" d="M{long - 4:.2f} 0l1 20m1.5 0l-1 -20"/>')
    elif row.spread:
        low, high = (min(end, longest) / longest * 100 for end in row.spread)
        marks.append(f'<path class="spread" d="M{low:.2f} 6v8m0 -4H{high:.2f}m0 -4v8"/>')
    box = 'viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true"'
    return f'<svg class="track" {box}>{"".join(marks)}</svg>'


def stacked(parts: Sequence[tuple[str, float]], *, title: str, width: float = 640.0) -> str:
    """One bar of several shares, `s0`, `s1`, ... in the style sheet."""
    total = sum(value for _, value in parts) or 1.0
    label = escape(title, quote=True)
    made = [f'<svg class="chart" viewBox="0 0 {width:g} 28" role="img" aria-label="{label}">']
    x = 0.0
    for index, (name, value) in enumerate(parts):
        wide = value / total * width
        gap = 2.0 if wide > 4 else 0.0
        made.append(
            f'<rect class="s{index % 6}" x="{x:.1f}" y="0" width="{max(wide - gap, 0.5):.1f}" '
            f'height="28" rx="3"><title>{escape(name)}</title></rect>'
        )
        x += wide
    return "".join([*made, "</svg>"])
