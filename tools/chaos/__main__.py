"""Chaos: kills, damaged files, two writers, a full disk, clocks that jump.

python tools/chaos [--attempts 10000] [--kills 50] [--only readers,kills,surroundings]

Prints a table and writes benchmarks/results/chaos/MACHINE.json; ends with 1 unless all survived.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "models"), str(ROOT / "tests")]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]


def main() -> int:
    if sys.argv[1:2] == ["worker"]:
        from reading import work

        name, *numbers = sys.argv[2:]
        work(name, *map(int, numbers))
        return 0
    from run import ALL, run

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--attempts", type=int, default=10_000, help="damaged files in all")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=ALL)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
