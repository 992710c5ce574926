"""What every benchmark records about where, when and from what its numbers came."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def provenance() -> dict[str, Any]:
    cpu = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    commit = ""
    with contextlib.suppress(OSError):  # a lent machine may have no git, and no history
        asked = ["git", "rev-parse", "HEAD"]
        found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
        commit = found.stdout.strip()
    versions = {"python": platform.python_version()}
    for package in ("apache-tvm", "apache-tvm-ffi", "numpy", "pyarrow", "torch"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "machine": {"cpu": cpu, "cores": len(os.sched_getaffinity(0))},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "versions": versions,
    }


def write_result(name: str, result: dict[str, Any]) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**result, **provenance()}, indent=2) + "\n")
    return path
