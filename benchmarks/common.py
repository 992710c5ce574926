"""What every benchmark shares: where its results are, and from what its numbers came."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

# What somebody tuned on this machine before must not decide a benchmark, here or in its children.
os.environ["TENSORESE_STORE"] = "off"


def cpu_info() -> dict[str, str]:
    """The first processor's entry of /proc/cpuinfo."""
    first, _, _ = Path("/proc/cpuinfo").read_text().partition("\n\n")
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def machine_name(gpu: bool = False) -> str:
    """What a result file of this machine is called: `zen4`, `xeon`, `h200`."""
    if gpu:
        return gpu_name().lower().split()[-1]
    info = cpu_info()
    if info.get("vendor_id") == "AuthenticAMD":
        family, wide = int(info["cpu family"]), "avx512f" in info["flags"].split()
        return {23: "zen2", 25: "zen4" if wide else "zen3"}.get(family, f"zen{family - 21}")
    return "xeon" if "Xeon" in info.get("model name", "") else platform.machine()


def gpu_name() -> str:
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    return answer.stdout.splitlines()[0]


def result_file(script: str, suffix: str = ".json", machine: str = "") -> Path:
    """The one current file of a benchmark and a machine."""
    return RESULTS / script / f"{machine or machine_name()}{suffix}"


def environment() -> dict[str, str]:
    """Of a process that runs this tree's code."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def provenance() -> dict[str, Any]:
    commit = ""
    with contextlib.suppress(OSError):  # a lent machine may have no git, and no history
        asked = ["git", "rev-parse", "HEAD"]
        answer = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
        commit = answer.stdout.strip()
    versions = {"python": platform.python_version()}
    for package in ("apache-tvm", "apache-tvm-ffi", "numpy", "pyarrow", "torch"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    cpu = cpu_info().get("model name", platform.processor())
    return {
        "machine": {"cpu": cpu, "cores": len(os.sched_getaffinity(0))},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "versions": versions,
    }


def write_result(script: str, result: dict[str, Any], machine: str = "") -> Path:
    path = result_file(script, machine=machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**result, **provenance()}, indent=1) + "\n")
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    """JSON lines, none where there is no file yet."""
    return list(_rows(path.read_text())) if path.exists() else []


def _rows(text: str) -> Iterator[dict[str, Any]]:
    yield from (json.loads(line) for line in text.splitlines() if line.strip())


def add_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
