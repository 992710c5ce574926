"""What one step sees: groups of programs of one task and platform, drawn anew each epoch.

Drawing depends on (seed, epoch) alone, so a resumed run sees what the killed one would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Ints
from tensorese.features.programs import ProgramSet


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    size: int = 256
    """Programs in a group: the list a ranking loss orders."""
    per_batch: int = 4
    balance: float = 0.5
    """0: platforms weigh by their labels; 1: a platform with few labels is repeated up to par."""
    by_task: bool = True
    """False mixes tasks and platforms in a group, as published."""


class Groups:
    """All training groups of a program set; `epoch(k)` is `[batches, per_batch, size]`."""

    def __init__(
        self,
        programs: ProgramSet,
        tasks: Sequence[int],
        config: GroupConfig,
        *,
        seed: int,
        failed: bool,
    ) -> None:
        self.config = config
        self.seed = seed
        allowed = np.isin(programs.task, np.asarray(tasks))
        self.lists: list[list[Ints]] = []
        valid = np.isfinite(programs.latency) & allowed[:, None]
        known = valid | (programs.failed & allowed[:, None]) if failed else valid
        if config.by_task:
            for head in range(len(programs.platforms)):
                self.lists.append(self._lists(programs.task, valid[:, head], known[:, head]))
        elif valid.sum() > 1:
            # Every program once, with the labels it has.
            self.lists.append([np.flatnonzero(known.any(1))])
        self.records = sum(len(members) for lists in self.lists for members in lists)
        most = max((sum(map(len, lists)) for lists in self.lists), default=0)
        self.repeats = [
            max(1, round((most / max(1, sum(map(len, lists)))) ** config.balance)) if lists else 0
            for lists in self.lists
        ]

    def _lists(
        self, task: Ints, valid: npt.NDArray[np.bool_], known: npt.NDArray[np.bool_]
    ) -> list[Ints]:
        # A list with fewer than two labels has nothing to order.
        enough = np.bincount(task[valid], minlength=int(task.max()) + 1) > 1
        order = np.flatnonzero(known & enough[task])
        order = order[np.argsort(task[order], kind="stable")]
        return [part for part in np.split(order, _changes(task[order])) if len(part)]

    @property
    def per_epoch(self) -> int:
        """Batches in an epoch."""
        size, count = self.config.size, 0
        for lists, repeat in zip(self.lists, self.repeats, strict=True):
            count += repeat * sum(-(-len(members) // size) for members in lists)
        return -(-count // self.config.per_batch)

    def epoch(self, number: int) -> Ints:
        """Program indices, -1 where a group is short."""
        rng = np.random.default_rng([self.seed, number])
        size = self.config.size
        rows: list[Ints] = []
        for lists, repeat in zip(self.lists, self.repeats, strict=True):
            for members in lists * repeat:
                shuffled = rng.permutation(members)
                count = -(-len(shuffled) // size)
                padded = np.full(count * size, -1, dtype=np.int64)
                # Dealt like cards: the groups of a task differ by one program at most.
                slots = np.arange(count * size).reshape(count, size).T.reshape(-1)
                padded[slots[: len(shuffled)]] = shuffled
                rows.append(padded.reshape(count, size))
        groups = np.concatenate(rows)
        groups = groups[rng.permutation(len(groups))]
        short = -len(groups) % self.config.per_batch
        # The last batch is filled up with groups of the first, so that all batches are alike.
        groups = np.concatenate([groups, np.resize(groups, (short, size))]) if short else groups
        return groups.reshape(-1, self.config.per_batch, size)


def _changes(values: Ints) -> Ints:
    return np.flatnonzero(np.diff(values)) + 1
