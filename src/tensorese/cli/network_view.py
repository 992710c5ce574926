"""The paper's figures by network, and the tasks that cost most, as `eval` and `compare` show
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SHOWN = 20


def network_lines(figures: Mapping[str, Any]) -> list[str]:
    """Of what `Pooled.to_dict` gives."""
    if not figures["weighted"]:
        return ["pooled: every task counts once, since no list says how often networks use them"]
    worst_first = sorted(figures["networks"], key=lambda one: float(one["top1"]))
    width = max(len(one["network"]) for one in worst_first)
    lines = [
        f"{one['network']:{width}}  top-1 {one['top1']:.3f}  top-5 {one['top5']:.3f}  "
        f"{one['tasks']} tasks"
        for one in worst_first[:SHOWN]
    ]
    if len(worst_first) > SHOWN:
        lines.append(f"{len(worst_first) - SHOWN} networks that lose less: --json names them")
    if figures["unlisted"]:
        lines.append(f"{figures['unlisted']} tasks that the list does not name count nothing here")
    return lines


def cost_lines(costs: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for cost in costs:
        times = "once" if cost["weight"] == 1 else f"{cost['weight']:g} times"
        where = f"{cost['network']}, {times}: " if cost["network"] else ""
        shapes = " ".join(cost["shapes"])
        lines.append(
            f"{cost['share']:5.1%} of the loss  {where}{cost['name']} {shapes}, "
            f"top-1 {cost['top1']:.3f}"
        )
    return lines
