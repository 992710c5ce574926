from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

from tensorese.workloads import prepare
from workload_support import host, network_of, worst_error

pytestmark = pytest.mark.tvm


def test_a_rewriting_that_fails_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import sys

    room = sys.modules["tensorese.workloads.prepare"]

    def regroup(module: Any, **_: Any) -> Any:
        raise KeyError("no such layout")

    monkeypatch.setattr(room, "regroup", regroup)
    network = network_of(nn.Conv2d(3, 4, 3), torch.randn(1, 3, 8, 8))
    with caplog.at_level(logging.WARNING, logger="tensorese"):
        assert worst_error(network, host()) < 1e-5
        prepare(network.module, host())
    said = [record.message for record in caplog.records if record.name == "tensorese"]
    assert said == ["the network goes on without regroup: 'no such layout'"]  # once, not twice
