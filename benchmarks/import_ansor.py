"""Imports every Ansor file of the shared data into one store and measures the cost.

    python benchmarks/import_ansor.py

One row per file, then the whole: seconds, peak memory of this process, size of the store, and
how long a process that opens it afresh needs for the best record of every task.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common import ROOT, write_result
from tensorese.records.importers import read_records
from tensorese.records.store import Store

LIMITS = {"seconds": 120.0, "peak_mib": 2048.0, "store_mb": 25.0, "best_ms": 100.0}

# A new process, so that nothing is cached but the disk: open, then the best of every platform.
COLD_BEST = """
import sys, time
from tensorese.records.store import Store
start = time.perf_counter()
store = Store.open(sys.argv[1])
tasks = sum(len(store.best(platform)) for platform in sorted(store.platforms()))
print((time.perf_counter() - start) * 1e3, tasks)
"""


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    data = Path(os.environ.get("TENSORESE_SHARED_DATA", ROOT.parent / "shared" / "data"))
    files = sorted((data / "ansor").glob("*.json.zst"))
    if not files:
        print(f"no Ansor files in {data / 'ansor'}; set TENSORESE_SHARED_DATA", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        result = measure(files, Path(folder) / "store")
    show(result)
    write_result("import_ansor", result)
    over = [name for name, limit in LIMITS.items() if result["total"][name] > limit]
    return 1 if over else 0


def measure(files: list[Path], folder: Path) -> dict[str, Any]:
    store = Store.open(folder, create=True)
    seconds = {}
    for path in files:
        name = path.name.removesuffix(".json.zst")
        start = time.perf_counter()
        store.ingest(read_records(path, name))
        seconds[name] = time.perf_counter() - start
    facts = store.info()
    rows = {
        name: {
            "records": counts["measurements"],
            "valid": counts["valid"],
            "tasks": counts["tasks"],
            "seconds": seconds[name],
        }
        for name, counts in facts["platforms"].items()
    }
    best_ms, tasks = cold_best(folder)
    total = {
        "records": facts["measurements"],
        "valid": sum(row["valid"] for row in rows.values()),
        "tasks": tasks,
        "seconds": sum(seconds.values()),
        "cpu_seconds": time.process_time(),
        "load_average": os.getloadavg()[0],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "store_mb": facts["bytes"] / 1e6,
        "best_ms": best_ms,
    }
    return {"files": rows, "total": total, "limits": LIMITS}


def cold_best(folder: Path, repeats: int = 5) -> tuple[float, int]:
    """Median milliseconds over fresh processes; imports are not counted."""
    runs = []
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", COLD_BEST, str(folder)],
            capture_output=True,
            text=True,
            check=True,
        )
        ms, tasks = done.stdout.split()
        runs.append((float(ms), int(tasks)))
    return sorted(runs)[repeats // 2]


def show(result: dict[str, Any]) -> None:
    table = Table("file", "records", "valid", "tasks", "seconds")
    for name, row in [*result["files"].items(), ("all", result["total"])]:
        counts = (f"{row[key]:,}" for key in ("records", "valid", "tasks"))
        table.add_row(name, *counts, f"{row['seconds']:.1f}")
    console = Console()
    console.print(table)
    total = result["total"]
    console.print(
        f"CPU {total['cpu_seconds']:.0f} s (load average {total['load_average']:.1f}), "
        f"peak memory {total['peak_mib']:.0f} MiB, store {total['store_mb']:.1f} MB, best of "
        f"{total['tasks']} tasks on all platforms {total['best_ms']:.0f} ms (cold open)"
    )


if __name__ == "__main__":
    sys.exit(main())
