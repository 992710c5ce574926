"""A stored run, played again: what `tensorese dashboard --demo` shows.

`demo_run.json.gz` holds what a report is drawn from, of a real run, without programs and scores
of no use to it; `tools/store_demo_run.py` writes it.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensorese.report.gather import OUTCOME, Parts, Report, assemble

DEMO = Path(__file__).with_name("demo_run.json.gz")


class Replay:
    """The run `secs` seconds long, from the moment this is made; then it stays at its end."""

    def __init__(
        self, parts: Parts, secs: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.parts = parts
        ends = max((float(batch["secs"]) for batch in parts.batches), default=0.0)
        self._speed = ends / secs
        self._clock = clock
        self._began = clock()

    def state(self) -> object:
        return len(self._done())

    def report(self) -> Report:
        done = self._done()
        if len(done) == len(self.parts.batches):
            return assemble(self.parts)
        programs = {proposed["program"] for batch in done for proposed in batch["proposed"]}
        return assemble(
            Parts(
                head={**self.parts.head, "state": "replayed", "seconds": 0.0},
                batches=done,
                outcomes=[row for row in self.parts.outcomes if row["program_id"] in programs],
            )
        )

    def _done(self) -> Sequence[Mapping[str, Any]]:
        now = (self._clock() - self._began) * self._speed
        return [batch for batch in self.parts.batches if float(batch["secs"]) <= now]


def store(parts: Parts, path: Path) -> None:
    """Without what no report shows: where the machine's name and most of the bytes are."""
    batches = [
        {**batch, "proposed": [_proposed(row) for row in batch["proposed"]]}
        for batch in parts.batches
    ]
    shown = ("latency", "origin")
    best = {task: {key: row.get(key) for key in shown} for task, row in parts.best.items()}
    left_out = ("signature", "library", "weights", "tasks", "host")
    certificate = {key: row for key, row in parts.certificate.items() if key not in left_out}
    environment = {k: v for k, v in parts.head.get("environment", {}).items() if k != "host"}
    stored = replace(
        parts,
        head={**parts.head, "environment": environment},
        batches=batches,
        best=best,
        certificate=certificate,
        outcomes=[{key: row[key] for key in OUTCOME} for row in parts.outcomes],
    )
    text = json.dumps(vars(stored), separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _proposed(row: Mapping[str, Any]) -> dict[str, Any]:
    score = row.get("score")
    return {
        "program": row["program"],
        "score": round(score, 3) if isinstance(score, float) else None,
    }


def stored(path: Path = DEMO) -> Parts:
    return Parts(**json.loads(gzip.decompress(path.read_bytes())))
