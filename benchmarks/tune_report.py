"""Table and drawing of the comparison, from its committed rows alone."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from common import read_rows

TITLE = "# Tensorese against stock MetaSchedule"


def report(sets: list[Any], path: Path, trials: int) -> None:
    """One page of all sets that the machine has rows of, and a drawing of the last of them."""
    sections: list[str] = []
    drawn: list[dict[str, Any]] = []
    for chosen in sets:
        text, lines = _section(chosen, read_rows(path), trials)
        sections += [text] if lines else []
        drawn = lines or drawn
    if not drawn:
        raise SystemExit("no task has rows of both systems yet")
    text = "\n".join([f"{TITLE}\n", *sections])
    path.with_suffix(".md").write_text(text)
    path.with_suffix(".svg").write_text(_svg(drawn))
    print(f"{text}\n{path.with_suffix('.md')}")


def _section(
    chosen: Any, rows: list[dict[str, Any]], trials: int
) -> tuple[str, list[dict[str, Any]]]:
    """Of the machine the winners were timed again on, else of the latest row's."""
    kept = next((row for row in rows if row.get("retimed") == chosen.name), {})
    rows = [row for row in rows if row.get("task") in chosen.tasks]
    retimed = kept.get("tasks", {})
    source = kept.get("where") or (rows[-1] if rows else {})
    here = {name: source.get(name, "") for name in ("machine", "tvm")}
    rows = [row for row in rows if all(row[k] == here[k] for k in here)]
    shipped = _shipped_lines(chosen, rows, retimed)
    lines = [line for task in chosen.tasks if (line := _line(task, rows, retimed, trials))]
    text = f"## Set `{chosen.name}`\n\n"
    text += _markdown(lines, here, trials) if lines else f"{_place(here)}.\n"
    return text + _shipped(chosen, shipped), lines if chosen.name == "subgraphs" else shipped


def _place(here: dict[str, str]) -> str:
    return f"{here['machine']}, TVM {here['tvm']}"


def _of(rows: list[dict[str, Any]], system: str, task: str, trials: int) -> list[dict[str, Any]]:
    return [r for r in rows if (r["system"], r["task"], r["trials"]) == (system, task, trials)]


def _line(
    task: str, rows: list[dict[str, Any]], retimed: dict[str, Any], trials: int
) -> dict[str, Any]:
    ours, stock = (_of(rows, system, task, trials) for system in ("ours", "stock"))
    if not ours or not stock:
        return {}
    again = retimed.get(task, {})
    times = [again[f"ours-{trials}-{r['seed']}"]["latency"] for r in ours if again]
    theirs = again[f"stock-{trials}-0"]["latency"] if again else math.nan
    match = _match(task, rows, again, ours, trials)
    return {**_compared(stock[0], ours, theirs, times), "match": match}


def _compared(
    stock: dict[str, Any], ours: list[dict[str, Any]], theirs: float, times: list[float]
) -> dict[str, Any]:
    secs = [row["secs"] for row in ours]
    return {
        "task": stock["task"],
        "trials": stock["trials"],
        "stock_secs": stock["secs"],
        "ours_secs": secs,
        "stock_ms": theirs * 1e3,
        "ours_ms": [t * 1e3 for t in times],
        "faster": stock["secs"] / statistics.geometric_mean(secs),
        "quality": theirs / statistics.geometric_mean(times) if times else math.nan,
    }


def _match(
    task: str, rows: list[dict[str, Any]], again: dict[str, Any], ours: list[Any], trials: int
) -> str:
    """When stock's long run first had a program as fast as ours, by its own clock and timer."""
    long = [
        r for r in rows if r["system"] == "stock" and r["task"] == task and r["trials"] > trials
    ]
    if not long:
        return ""
    wanted = statistics.geometric_mean([r["latency"] for r in ours])
    for secs, n, best in long[0]["curve"]:
        if best is not None and best <= wanted * 1.01:
            return f"{n} trials, {secs:.0f} s"
    return f"not in {long[0]['trials']} trials, {long[0]['secs']:.0f} s"


def _markdown(lines: list[dict[str, Any]], here: dict[str, str], trials: int) -> str:
    table = [
        "| task | stock, s | ours, s | times faster | stock, ms | ours, ms | speed | stock needs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        secs = ", ".join(f"{s:.1f}" for s in line["ours_secs"])
        ms = ", ".join(f"{t:.4f}" for t in line["ours_ms"])
        table.append(
            f"| {line['task']} | {line['stock_secs']:.1f} | {secs} | {line['faster']:.1f}x "
            f"| {line['stock_ms']:.4f} | {ms} | {line['quality']:.2f}x | {line['match']} |"
        )
    faster = [line["faster"] for line in lines]
    quality = [line["quality"] for line in lines if line["quality"] == line["quality"]]
    mean = statistics.geometric_mean
    text = [
        f"{_place(here)}, {trials} trials a task, process start to result; "
        "both systems use all cores. Stock: XGB, one seed. Ours: `--model none`, empty store, "
        f"{max(len(line['ours_secs']) for line in lines)} seeds. Latencies are of the winners "
        "timed together, in turns, by one harness.",
        "",
        *table,
        "",
        f"Wall-clock: geometric mean {mean(faster):.1f}x, least {min(faster):.1f}x. "
        + (f"Latency of stock over ours: geometric mean {mean(quality):.3f}x." if quality else ""),
        "",
        "`stock needs`: when stock's run of 256 trials first had a program as fast as our mean, "
        "each by its own timer.",
    ]
    return "\n".join(text) + "\n"


def _shipped_lines(
    chosen: Any, rows: list[dict[str, Any]], retimed: dict[str, Any]
) -> list[dict[str, Any]]:
    """Ours with the shipped model and few trials, beside every run of stock there is."""
    lines = []
    stock = [row for row in rows if row["system"] == "stock"]
    for theirs in sorted(stock, key=lambda row: list(chosen.tasks).index(row["task"])):
        again = retimed.get(theirs["task"], {})
        name = f"stock-{theirs['trials']}-{theirs['seed']}"
        auto = {
            f"auto-{row['trials']}-{row['seed']}": row
            for row in rows
            if row["system"] == "auto" and row["task"] == theirs["task"]
        }
        auto = {key: row for key, row in auto.items() if key in again}
        if not auto or name not in again:
            continue
        times = [again[key]["latency"] for key in auto]
        lines.append(_compared(theirs, list(auto.values()), again[name]["latency"], times))
    return lines


def _shipped(chosen: Any, lines: list[dict[str, Any]]) -> str:
    if not lines:
        return ""
    unseen = (
        "tasks of networks that are held out, listed before any model was trained"
        if chosen.name != "subgraphs"
        else "the same subgraphs, harness and stock runs. Not one of these workloads was trained "
        "on, but networks with like layers were"
    )
    text = [
        "",
        "### With the shipped model, 32 trials",
        "",
        f"`--model auto`, empty store; {unseen}.",
        "",
        "| task | stock trials | stock, s | ours, s | times faster | stock, ms | ours, ms "
        "| speed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        text.append(
            f"| {line['task']} ({chosen.tasks[line['task']].source}) | {line['trials']} "
            f"| {line['stock_secs']:.1f} | {', '.join(f'{s:.1f}' for s in line['ours_secs'])} "
            f"| {line['faster']:.1f}x | {line['stock_ms']:.4f} "
            f"| {', '.join(f'{t:.4f}' for t in line['ours_ms'])} | {line['quality']:.2f}x |"
        )
    mean = statistics.geometric_mean
    for count in sorted({line["trials"] for line in lines}):
        these = [line for line in lines if line["trials"] == count]
        text += [
            "",
            f"Against {count} trials of stock ({len(these)} tasks): "
            f"{mean(line['faster'] for line in these):.1f}x less wall-clock (least "
            f"{min(line['faster'] for line in these):.1f}x), "
            f"winners {mean(line['quality'] for line in these):.3f}x as fast.",
        ]
    return "\n".join(text) + "\n"


def _svg(lines: list[dict[str, Any]]) -> str:
    """Seconds to the result (bars, log scale) and the speed of the winners (numbers)."""
    width, bar, gap, left, right = 760, 14, 22, 120, 190
    height = 60 + len(lines) * (2 * bar + gap)
    most = max(line["stock_secs"] for line in lines) * 1.1
    scale = (width - left - right) / math.log10(most)

    def x(secs: float) -> float:
        return left + scale * math.log10(max(secs, 1.0))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="20">seconds from process start to result: '
        '<tspan fill="#888">MetaSchedule</tspan>, <tspan fill="#1a6">Tensorese</tspan></text>',
    ]
    for tick in (1, 3, 10, 30, 100, 300, 1000):
        if tick < most:
            parts.append(
                f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="30" y2="{height - 20}" '
                f'stroke="#ddd"/><text x="{x(tick):.1f}" y="{height - 6}" '
                f'text-anchor="middle">{tick}</text>'
            )
    for index, line in enumerate(lines):
        top = 38 + index * (2 * bar + gap)
        ours = statistics.geometric_mean(line["ours_secs"])
        parts.append(
            f'<text x="{left - 8}" y="{top + bar + 4}" text-anchor="end">{line["task"]}</text>'
        )
        for offset, secs, colour in ((0, line["stock_secs"], "#aaa"), (bar, ours, "#1a6")):
            parts.append(
                f'<rect x="{left}" y="{top + offset}" width="{x(secs) - left:.1f}" '
                f'height="{bar - 2}" fill="{colour}"/>'
            )
        parts.append(
            f'<text x="{width - right + 12}" y="{top + bar + 4}">{line["faster"]:.1f}x sooner, '
            f"{line['quality']:.2f}x as fast</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
