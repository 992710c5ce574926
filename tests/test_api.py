"""`tensorese.tune` on a model that was never a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tensorese
from tensorese.records.run_folder import MODEL
from tensorese.workloads import load_network

pytestmark = pytest.mark.tvm


def test_a_program_in_memory_is_kept_in_its_run(tmp_path: Path) -> None:
    model = torch.nn.Linear(32, 16).eval()
    exported = torch.export.export(model, (torch.zeros(4, 32),))
    run = tensorese.tune(exported, trials=4, ranker="none", out=tmp_path / "run", compile=False)
    assert run.state == "finished" and run.trials == 4
    kept = load_network(str(run.path / MODEL))
    assert [given.spec.shape for given in kept.inputs] == [(4, 32)]
