"""Whether something else used the machine while systems were timed.

A load that stays for the whole comparison makes every round slow alike: the rounds agree and say
nothing. What the kernel counts does not lie about that: time stolen from a virtual machine, and
time its cores spent on other processes than the ones that were timed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FOREIGN = 0.05  # of the cores
_STOLEN = 0.02
_SPREAD = 0.25  # of the rounds' medians
_SLOWER = 1.3  # kernels in the library against the same kernels when they were tuned
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """Seconds of all cores so far: busy, stolen, and of our own processes."""

    busy: float
    stolen: float
    total: float
    own: float


def read_clocks(processes: Iterable[int]) -> Clocks:
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, idle, waiting, hard, soft, stolen = fields[:8]
    busy = user + nice + system + hard + soft
    own = sum(map(_spent, {os.getpid(), *processes}))
    total = busy + idle + waiting + stolen
    return Clocks(busy=busy / _TICK, stolen=stolen / _TICK, total=total / _TICK, own=own / _TICK)


def _spent(process: int) -> int:
    """Ticks of a process, of all its threads; none when it has ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return 0


def others(before: Clocks, after: Clocks) -> list[str]:
    """What else ran between two readings, in words; nothing where it does not matter."""
    total = max(after.total - before.total, 1e-9)
    stolen = (after.stolen - before.stolen) / total
    foreign = (after.busy - before.busy - (after.own - before.own)) / total
    disturbances = []
    if foreign > _FOREIGN:
        disturbances.append(f"other processes took {100 * foreign:.0f} % of the cores")
    if stolen > _STOLEN:
        disturbances.append(f"the host took {100 * stolen:.0f} % of them away")
    return disturbances


def unsteady(latency: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Systems whose rounds lie far apart."""
    apart = [name for name, row in latency.items() if row["runs"] > 1 and row["spread"] > _SPREAD]
    return [f"the rounds of {', '.join(apart)} lie over {100 * _SPREAD:.0f} % apart"] * bool(apart)


def slowed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether tuned kernels, all in all, take much longer than when they were tuned."""
    tuned = [row for row in rows if row["promised"]]
    promised = sum(float(row["promised"]) for row in tuned)
    taken = sum(float(row["secs"]) for row in tuned)
    most = sum(float(row["secs"]) > _SLOWER * float(row["promised"]) for row in tuned)
    if len(tuned) < 2 or taken < _SLOWER * promised or most <= len(tuned) / 2:
        return []
    return [f"tuned kernels take {taken / promised:.1f} times what they took when they were tuned"]
