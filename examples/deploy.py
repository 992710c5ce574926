"""Runs a tuned library from Python, with this package and with stock TVM alone.

python examples/deploy.py RUN
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

import tensorese


def main() -> None:
    run = Path(sys.argv[1])
    # Whoever only deploys needs these two files, library.so and certificate.json.
    signature = json.loads((run / "certificate.json").read_text())["signature"]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(one["shape"]).astype(one["dtype"]) for one in signature["inputs"]]

    # Checks hash, shapes and types; uses the cores that the library was tuned for.
    library = tensorese.load(run)
    ours = library(*inputs)

    # library.so is complete: stock TVM runs it. Set TVM_NUM_THREADS, or it takes half of the cores.
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(run / "library.so")), tvm.cpu())
    stock = machine["main"](*(tvm.runtime.tensor(one) for one in inputs))

    first = ours[0] if isinstance(ours, tuple) else ours
    other = (stock if hasattr(stock, "numpy") else stock[0]).numpy()
    print(f"output {first.shape}, sum {first.sum():.6g}")
    print(f"largest difference between the two: {np.abs(first - other).max():.1e}")


if __name__ == "__main__":
    main()
