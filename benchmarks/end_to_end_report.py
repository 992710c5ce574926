"""What the rows say: a table, and for every network that loses the operators that cost it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import read_rows
from end_to_end_networks import NETWORKS
from tensorese.deploy.systems import RIVALS

OURS = ("tuned", "unpacked", "tuned-unpacked")
OTHERS = {"tuned-hot": "--cache hot", "tuned-direct": "--no-winograd"}
NEEDED = 0.95  # of the best rival's speed, on every network
SHOWN = 5
Row = dict[str, Any]


def report(rows: Path, minutes: float, seed: int = 0) -> bool:
    """Writes the table beside the rows; False where there is nothing to report."""
    networks = []
    for network in NETWORKS:
        mine = [
            row
            for row in read_rows(rows)
            if (row["network"], row["minutes"], row["seed"]) == (network, minutes, seed)
        ]
        if mine:
            newest = [row for row in mine if row["library"] == mine[-1]["library"]]
            networks.append(summarise(newest))
    if not networks:
        print("no rows yet: tune, then time")
        return False
    text = markdown(networks, minutes)
    rows.with_suffix(".md").write_text(text)
    print(text)
    return True


def summarise(rows: Sequence[Row]) -> Row:
    """One network: medians over its times, and where its time goes."""

    def median(system: str) -> float | None:
        times = [row["latency"] for row in rows if row["system"] == system]
        return statistics.median(times) if times else None

    latency = {name: median(name) for name in (*OURS, *OTHERS, *RIVALS)}
    best = min((secs for name in RIVALS if (secs := latency[name])), default=None)
    tuned = latency["tuned"]
    unpacked = min((s for name in OURS[1:] if (s := latency[name])), default=None)
    ours = [row for row in rows if row["system"] == "tuned"]
    peak = statistics.median(row["peak_gflops"] for row in ours)
    last = ours[-1]
    return {
        "network": last["network"],
        "machine": last["machine"],
        "date": last["date"],
        "tvm": last["tvm"],
        "times": len(ours),
        "trials": last["trials"],
        "latency": latency,
        "speed": best / tuned if best and tuned else None,
        "speed_unpacked": best / unpacked if best and unpacked else None,
        "gap": statistics.median(row["explanation"]["gap"] for row in ours),
        "peak_gflops": peak,
        "of_roofline": last["flops"] / tuned / 1e9 / peak if tuned else None,
        "costliest": costliest(ours, peak),
        "causes": last["explanation"]["causes"],
        "absent": last["absent"],
    }


def costliest(ours: Sequence[Row], peak: float) -> list[Row]:
    """Kernels by the time they take beyond what the cores' peak would need, in place."""
    named = {kernel["kernel"]: kernel for row in ours for kernel in row["kernels"]}
    costs = []
    for name, kernel in named.items():
        seen = [k["secs"] for row in ours for k in row["kernels"] if k["kernel"] == name]
        secs = statistics.median(seen)
        costs.append(
            {
                "kernel": name.removesuffix("_scheduled"),
                "operator": kernel["operator"],
                "shapes": kernel["shapes"],
                "calls": kernel["calls"],
                "secs": secs,
                "lost": secs - kernel["flops"] / peak / 1e9,
                "of_peak": kernel["flops"] / secs / 1e9 / peak if secs else None,
            }
        )
    return sorted(costs, key=lambda one: -one["lost"])[:SHOWN]


def markdown(networks: Sequence[Row], minutes: float) -> str:
    machine = networks[0]["machine"]
    speeds = [[one[name] or 0 for one in networks] for name in ("speed", "speed_unpacked")]
    ahead, ahead_unpacked = (sum(speed >= 1 for speed in each) for each in speeds)
    enough = min(min(each) for each in speeds) >= NEEDED
    lines = [
        "# End to end",
        "",
        f"Each network tuned once with `--minutes {minutes:g}` ({machine}), then timed "
        f"{networks[0]['times']} times in turn, in float32 on the same cores, with torch "
        "(channels_last, inference_mode), torch.compile (frozen weights), onnxruntime and "
        "OpenVINO. Milliseconds; speed is the best rival's latency over ours. Without prepacking: "
        "the same programs on weights in the network's own order, and programs tuned for that "
        "order (`--no-prepack`); the better counts. "
        "Weights of Winograd's products are transformed when the graph is folded, as batch norms "
        "are, and then count as the network's own. Of peak: operations of the network as written, "
        "of which Winograd's algorithm does fewer.",
        "",
        f"| network | tuned | same, unpacked | tuned unpacked | {' | '.join(RIVALS)} | speed | "
        "unpacked speed | of peak | gap to tasks | trials |",
        f"|---|{'---:|' * (8 + len(RIVALS))}",
    ]
    lines += [_line(one) for one in networks]
    lines += ["", f"Ahead of all on {ahead} of {len(networks)}, without packing on "]
    lines[-1] += f"{ahead_unpacked}; at least {NEEDED:g}x on all, with and without "
    lines[-1] += f"packing: {'yes' if enough else 'no'}."
    for one in networks:
        lines += ["", f"## {one['network']}: where its time goes", ""]
        for name, option in OTHERS.items():
            if one["latency"].get(name):
                lines.append(f"- tuned with `{option}`: {_ms(one['latency'][name])} ms")
        lines += [_cost(kernel) for kernel in one["costliest"]]
        lines += [f"- against the tasks alone: {cause}" for cause in one["causes"][:SHOWN]]
        lines += [f"- {name}: {why}" for name, why in one["absent"].items()]
    return "\n".join(lines) + "\n"


def _line(one: Row) -> str:
    cells = [_ms(one["latency"][name]) for name in (*OURS, *RIVALS)]
    cells += [f"{one[n]:.2f}x" if one[n] else "-" for n in ("speed", "speed_unpacked")]
    cells += [f"{100 * (one['of_roofline'] or 0):.0f} %", f"{100 * one['gap']:+.0f} %"]
    return f"| {one['network']} | {' | '.join(cells)} | {one['trials']} |"


def _cost(kernel: Row) -> str:
    shapes = " ".join(kernel["shapes"][:2])
    cost = f"{kernel['secs'] * 1e3:.3f} ms in {kernel['calls']} calls"
    share = f", {100 * kernel['of_peak']:.0f} % of peak" if kernel["of_peak"] else ""
    return f"- {kernel['kernel']} ({kernel['operator']} {shapes}): {cost}{share}"


def _ms(secs: float | None) -> str:
    return f"{secs * 1e3:.3f}" if secs else "-"
