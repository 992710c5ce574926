"""What `tensorese collect` prints: a line now and then while it runs, a summary at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tensorese.collect.collector import Tally

_EVERY_SECS = 10.0
_SILENT_SECS = 30.0  # after which a host is no longer listed


def say(text: str) -> None:
    click.echo(text, err=True)


class Lines:
    """A line every ten seconds: programs, rate, failures by class, and every host's rate."""

    def __init__(self, label: str, *, fleet: bool = False) -> None:
        self.label = label
        self.fleet = fleet
        self.printed_at = time.monotonic()

    def update(self, tally: Tally) -> None:
        if time.monotonic() - self.printed_at >= _EVERY_SECS:
            self.printed_at = time.monotonic()
            say(self.line(tally))

    def line(self, tally: Tally) -> str:
        bad = {s: n for s, n in tally.by_status.items() if s != "ok"}
        parts = [f"{self.label}: {tally.measured} programs, {tally.rate:.1f}/s"]
        if bad:
            parts.append(", ".join(f"{n} {status}" for status, n in bad.items()))
        if self.fleet:
            now = time.monotonic()
            there = [(n, h) for n, h in sorted(tally.hosts.items()) if now - h.last < _SILENT_SECS]
            rates = ", ".join(f"{name} {host.rate:.1f}/s" for name, host in there)
            parts.append(f"{len(there)} node{'s' if len(there) != 1 else ''}: {rates}")
        return "; ".join(parts)


def summary_lines(result: Mapping[str, Any]) -> list[str]:
    counts = ", ".join(f"{n} {status}" for status, n in result["by_status"].items())
    lines = [
        f"{result['platform']}: {result['measured']} programs in {result['seconds']:.0f} s "
        f"({result['programs_per_sec']:.1f}/s): {counts or 'nothing new'}; "
        f"{100 * result['rejected_share']:.2f}% rejected by TVM; store {result['store']}"
    ]
    hosts = result["hosts"]
    if len(hosts) > 1:
        lines += [
            f"  {name}: {host['measured']} programs, {host['programs_per_sec']:.1f}/s"
            for name, host in hosts.items()
        ]
    lines += [
        f"  {name or 'unnamed host'}: {off['n']} measured again, differences: "
        f"median {100 * off['median']:.1f}%, p90 {100 * off['p90']:.1f}%, "
        f"bias {100 * off['bias']:+.1f}%"
        for name, off in result.get("again", {}).items()
    ]
    return lines
