"""A store of a million rows: opened, asked for its best programs, merged; each in a new process.

python benchmarks/store_scale.py [--rows 1000000]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT, environment, write_result

DATA = ROOT / "data" / "cpu"
PIECE = 1 << 16


def make(folder: Path, rows: int) -> None:
    """Real rows over and over, as other measurements of other programs."""
    import pyarrow as pa

    from tensorese.records import compaction
    from tensorese.records.parts import to_table
    from tensorese.records.store import Store

    with Store.open(DATA) as source:
        real = source.table()
        nouns = {
            "workloads": [source._contents.workloads.row(i) for i in source.workloads()],
            "sketches": [source._contents.sketches.row(i) for i in source.sketches()],
        }
    with Store.open(folder, create=True):
        pass
    copies, rng, made = -(-rows // real.num_rows), random.Random(0), 0
    with compaction.exclusive(folder):
        for kind, of_kind in nouns.items():
            compaction.write_part(folder, kind, to_table(kind, of_kind))
    order = list(range(real.num_rows))
    for copy in range(copies):
        rng.shuffle(order)
        for at in range(0, len(order), PIECE):
            piece = real.take(pa.array(order[at : at + PIECE]))[: rows - made]
            for column in ("id", "program_id"):
                place = piece.schema.get_field_index(column)
                named = [_name(name, copy) for name in piece[column].to_pylist()]
                piece = piece.set_column(place, column, pa.array(named, pa.string()))
            compaction.write_part(folder, "measurements", piece)
            made += piece.num_rows
            if made >= rows:
                break
    compaction.compact(folder)


def _name(id_: str, copy: int) -> str:
    """Another id of the same length."""
    return f"{(int(id_[:8], 16) + copy * 0x9E3779B1) % 2**32:08x}{id_[8:]}"


def step(name: str, store: Path, *others: Path) -> dict[str, Any]:
    """In this process: seconds, and megabytes at most."""
    from tensorese.records.store import Store

    before, started = _megabytes(), time.perf_counter()
    facts: dict[str, Any] = {}
    if name == "merge":
        with Store.open(store, create=True) as merged:
            facts["added"] = [merged.absorb(Store.open(other)) for other in others]
    else:
        with Store.open(store) as opened:
            platforms = sorted(opened.platforms())
            if name == "best":
                started = time.perf_counter()
                facts["workloads"] = len(opened.best("znver4-2c"))
            elif name == "info":
                facts["rows"] = opened.info()["measurements"]
            facts["platforms"] = len(platforms)
    secs = time.perf_counter() - started
    return {"secs": round(secs, 3), "mb": round(_megabytes()), "mb_before": round(before), **facts}


def _megabytes() -> float:
    """At most; `ru_maxrss` would be the parent's, before `exec`."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measured(name: str, *folders: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "step", name, *map(str, folders)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    print(f"{name}: {result}", flush=True)
    return result


def main() -> None:
    if sys.argv[1:2] == ["step"]:
        print(json.dumps(step(sys.argv[2], *map(Path, sys.argv[3:]))))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="where the store is, or is made")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = wanted.keep or Path(place) / "store"
        if not folder.exists():
            make(folder, wanted.rows)
        out = Path(place) / "merged"
        result = {"rows": wanted.rows, "parts": len(list(folder.glob("measurements-*")))}
        result |= {name: measured(name, folder) for name in ("open", "best", "info")}
        result["merge into an empty one"] = measured("merge", out, folder)
        result["merge again"] = measured("merge", out, folder)
        sizes = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    result["bytes"] = sum(sizes)
    if wanted.rows >= 1_000_000:
        print(write_result("store_scale", result))


if __name__ == "__main__":
    main()
