"""From a torch module to a faster function that takes and gives tensors.

python examples/tune_torch.py [--minutes 5] [--out runs/torch]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import tensorese


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=Path("runs/torch"))
    options = parser.parse_args()

    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 64)
    ).eval()
    batch = torch.randn(16, 256)

    run = tensorese.tune(module, (batch,), minutes=options.minutes, out=options.out)
    library = tensorese.load(run.path)

    with torch.inference_mode():
        error = (library(batch) - module(batch)).abs().max().item()
    print(f"largest difference from torch: {error:.1e}")


if __name__ == "__main__":
    main()
