"""A whole tuning run on devices of a tracker: one is killed, nothing is lost, the run ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorese
from rpc_support import OURS, Fleet, fleet
from tensorese.records.store import Store
from tensorese.search.loop.config import TuneError
from tensorese.search.loop.events import BatchDone, Callback

pytestmark = pytest.mark.tvm


class Killer(Callback):
    """Kills a server when the first batch is back."""

    def __init__(self, devices: Fleet) -> None:
        self.devices = devices
        self.killed = False

    def on_batch(self, event: BatchDone) -> None:
        if not self.killed:
            self.killed = True
            self.devices.kill(self.devices.servers[OURS][0])


def test_a_killed_device_loses_nothing_and_the_run_ends(tmp_path: Path) -> None:
    model = torch.nn.Linear(32, 16).eval()
    exported: Any = torch.export.export(model, (torch.zeros(4, 32),))
    with fleet(tmp_path, OURS, OURS) as devices:
        killer = Killer(devices)
        run = tensorese.tune(
            exported,
            trials=40,
            ranker="none",
            platform="board",
            fleet=devices.config(OURS),
            out=tmp_path / "run",
            callbacks=[killer],
        )
    assert killer.killed and (run.state, run.trials) == ("finished", 40)
    with Store.open(run.path / "store") as store:
        rows = [m for m in store.measurements(platform="board") if m.origin != "finalist"]
    assert len(rows) == 40 and all(m.status.value != "infra_error" for m in rows)
    certificate = json.loads((run.path / "certificate.json").read_text())
    assert certificate["platform"] == "board" and "of the tracker at" in certificate["device"]
    assert "latency" not in certificate, "the library is not timed on the wrong machine"
    assert all(v["passed"] for v in certificate["verification"]["against"].values())
    x = np.ones((4, 32), np.float32)
    with torch.no_grad():
        assert np.allclose(tensorese.load(run.path)(x), model(torch.from_numpy(x)), atol=1e-4)


def test_a_fleet_without_trials_is_refused(tmp_path: Path) -> None:
    from tensorese.measure.rpc_config import FleetConfig

    devices = FleetConfig(host="127.0.0.1", port=9, key="board")
    with pytest.raises(TuneError, match=r"devices .board. of the tracker at 127\.0\.0\.1:9"):
        tensorese.tune("zoo:resnet18", trials=0, fleet=devices, out=tmp_path / "run")
