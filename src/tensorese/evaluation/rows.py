"""Rows of a comparison: a system's figures on a platform, kept in a file as they are made."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tensorese.features.programs import DataError

KEYS = ("top1", "top5", "pairwise", "regret", "top1_low", "top1_high", "tasks")


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    platform: str
    system: str
    note: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    """Top-1 by task, for paired comparisons."""
    pairs: dict[str, float] = field(default_factory=dict)
    """Pairs ordered right by task: the steadiest figure, since luck has least part in it."""
    twice: dict[int, dict[str, float]] = field(default_factory=dict)
    """Top-1 and top-5 by task among the programs that were measured twice: the oracle's."""
    pooled: dict[str, Any] = field(default_factory=dict)
    """The paper's figures, with networks and the tasks that cost most."""
    costs: dict[str, Any] = field(default_factory=dict)
    """Of a model in a folder, see `Costs`."""
    weights: str = ""
    """The model's hash: a row of other weights is another row."""
    data: str = ""
    """Digest of the records that judged."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "platform": self.platform,
            "system": self.system,
            "note": self.note,
            "weights": self.weights,
            "data": self.data,
            **self.figures,
            **self.pooled,
            "cost": self.costs,
            "ratios": self.ratios,
            "pairs": self.pairs,
            "twice": {f"top{k}": ratios for k, ratios in self.twice.items()},
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """What `to_dict` wrote."""
        plain = ("platform", "system", "note", "weights", "data", "ratios", "pairs")
        others = {*plain, *KEYS, "twice", "cost"}
        return cls(
            **{name: row[name] for name in plain},
            figures={key: row[key] for key in KEYS if key in row},
            twice={int(name.removeprefix("top")): by for name, by in row["twice"].items()},
            pooled={name: value for name, value in row.items() if name not in others},
            costs=row["cost"],
        )


class RowFile:
    """Rows that a comparison has made, as JSON: it goes on where it was stopped."""

    def __init__(self, path: Path | None, head: Mapping[str, Any] | None = None) -> None:
        """`head` says of what machine, date and commit the rows are."""
        self.path, self.head = path, dict(head or {})
        self.rows: list[ComparedRow] = []
        if path is not None and path.exists():
            try:
                each = json.loads(path.read_text())["rows"]
                self.rows = [ComparedRow.from_dict(row) for row in each]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataError(
                    f"--rows takes a file that compare wrote, but {path} is none; name another"
                ) from error

    def known(self, platform: str, system: str, weights: str, data: str) -> ComparedRow | None:
        wanted = (platform, system, weights, data)
        for row in self.rows:
            if (row.platform, row.system, row.weights, row.data) == wanted:
                return row
        return None

    def keep(self, row: ComparedRow) -> ComparedRow:
        """In place of an earlier row of the system on the platform."""
        place = (row.platform, row.system)
        self.rows = [one for one in self.rows if (one.platform, one.system) != place] + [row]
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            lines = ",\n".join(json.dumps(one.to_dict()) for one in self.rows)
            scratch.write_text(f'{{"head": {json.dumps(self.head)}, "rows": [\n{lines}\n]}}\n')
            os.replace(scratch, self.path)
        return row
