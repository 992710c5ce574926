"""Networks written in torch, from the module to a verified library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorese
from tensorese.deploy import compile_run, load
from tensorese.deploy.compile import Timing
from torch_networks import LIBRARY, PLAIN, Made, from_library

pytestmark = pytest.mark.tvm

QUICK = Timing(rounds=2, secs=0.02)


def tuned(made: Made, out: Path) -> dict[str, Any]:
    """A run of a few trials; its certificate."""
    module, inputs = made
    run = tensorese.tune(module, inputs, trials=16, ranker="none", out=out, compile=False)
    assert run.winners
    return compile_run(run.path, timing=QUICK)


def agrees(made: Made, certificate: dict[str, Any]) -> bool:
    torch_says = certificate["verification"]["against"]["torch"]
    return bool(torch_says["passed"]) and certificate["verification"]["replaced"] == {}


@pytest.mark.parametrize("name", ["masked", "lstm", "unet"])
def test_plain_modules_tune_and_agree(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = PLAIN[name]()
    certificate = tuned(made, tmp_path / "run")
    assert agrees(made, certificate)
    assert certificate["verification"]["constant"] == []
    module, inputs = made
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module.eval()(*inputs))
    got = load(tmp_path / "run")(*inputs)
    for one, other in zip(got if isinstance(got, tuple) else [got], wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_resnext_tunes_and_agrees(tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = PLAIN["resnext"]()
    assert agrees(made, tuned(made, tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARY)
def test_networks_of_a_library_tune_and_agree(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    made = from_library(transformers, name)
    assert agrees(made, tuned(made, tmp_path / "run"))
