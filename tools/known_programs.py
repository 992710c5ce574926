"""Writes the fastest training programs of stores into a small store that ships with the models.

python tools/known_programs.py src/tensorese/models/shipped/best data/cpu data/h200
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tensorese.records.nouns import Measurement, Status
from tensorese.records.store import Store

KEPT = 2  # of a workload and platform: the second is there where the first cannot be fitted


def fastest(store: Store, platform: str) -> Iterator[Measurement]:
    """Without samples, settings and hosts: what a search starts from is the program."""
    by_workload: dict[str, dict[str, Measurement]] = {}
    rows = store.measurements(platform=platform, status=Status.OK, split="train")
    for one in sorted(rows, key=lambda m: m.latency):
        best = by_workload.setdefault(one.program.workload.id, {})
        if len(best) < KEPT:
            best.setdefault(one.program.id, one)
    for best in by_workload.values():
        for one in best.values():
            bare = {"timing": {}, "toolchain": {}, "verification": {}, "host": "", "error": ""}
            yield replace(one, run_secs=(one.latency,), **bare)


def main(out: Path, sources: list[Path]) -> None:
    with Store.open(out, create=True) as known:
        for source in sources:
            with Store.open(source) as store:
                for platform in sorted(store.platforms()):
                    known.ingest(fastest(store, platform))
        known.squeeze()
    (out / "compact.lock").unlink(missing_ok=True)
    print(f"{out}: {sum(path.stat().st_size for path in out.iterdir()):,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
