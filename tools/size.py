"""How large the house is, beside its budget: `python tools/size.py` exits with 1 over any of them.

Whoever adds to a room beyond its budget raises the budget in the same commit, where it is seen.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Lines of Python by room of src/tensorese; `modules` are the files beside the rooms.
ROOMS = {
    "cli": 2790,
    "collect": 3240,
    "deploy": 3430,
    "evaluation": 1320,
    "features": 2870,
    "integrations": 420,
    "language": 2610,
    "iterate": 1870,
    "lowering": 510,
    "measure": 5550,
    "models": 3470,
    "modules": 1270,
    "onboard": 490,
    "records": 3690,
    "report": 1470,
    "search": 4790,
    "space": 3520,
    "training": 4060,
    "workloads": 6700,
}
LINES = {"src": 53_950, "benchmarks": 9_520, "tests": 34_800}

# Bytes; docs without docs/log.
BYTES = {"benchmarks/results": 5_300_000, "docs": 168_000, "tracked files": 49_700_000}


def tracked(root: Path) -> list[str]:
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in listed.split("\0") if name and (root / name).is_file())


def line_counts(root: Path, files: list[str]) -> tuple[Counter[str], Counter[str]]:
    """Lines of Python by room of the package, and by top folder."""
    rooms: Counter[str] = Counter()
    tops: Counter[str] = Counter()
    for name in files:
        top = name.split("/")[0]
        if not name.endswith(".py") or top not in LINES:
            continue
        lines = len((root / name).read_text().splitlines())
        tops[top] += lines
        if top == "src":
            inside = name.split("/")[2:]
            rooms[inside[0] if len(inside) > 1 else "modules"] += lines
    return rooms, tops


def byte_counts(root: Path, files: list[str]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for name in files:
        size = (root / name).stat().st_size
        sizes["tracked files"] += size
        if name.startswith("benchmarks/results/"):
            sizes["benchmarks/results"] += size
        if name.startswith("docs/") and not name.startswith("docs/log/"):
            sizes["docs"] += size
    return sizes


def over_budget(counts: Mapping[str, int], budget: Mapping[str, int], unit: str) -> list[str]:
    """One line for everything that is larger than its budget, or has none."""
    return [
        f"{name}: {count} {unit}, budget {budget.get(name, 0)}"
        for name, count in sorted(counts.items())
        if count > budget.get(name, 0)
    ]


def _print(title: str, counts: Mapping[str, int], budget: Mapping[str, int]) -> None:
    print(f"{title:<22}{'now':>12}{'budget':>12}")
    for name in sorted({*counts, *budget}):
        print(f"  {name:<20}{counts.get(name, 0):>12,}{budget.get(name, 0):>12,}")


def main() -> int:
    files = tracked(ROOT)
    rooms, tops = line_counts(ROOT, files)
    sizes = byte_counts(ROOT, files)
    _print("lines, src/tensorese", rooms, ROOMS)
    _print("lines in all", tops, LINES)
    _print("bytes", sizes, BYTES)
    problems = over_budget(rooms, ROOMS, "lines") + over_budget(tops, LINES, "lines")
    problems += over_budget(sizes, BYTES, "bytes")
    for problem in problems:
        print(f"over budget: {problem}; shorten it, or raise its budget in tools/size.py")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
