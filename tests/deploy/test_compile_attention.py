"""A library whose attention is one kernel, decided by measuring and judged operator by operator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy_support import export
from tensorese import api
from tensorese.deploy import compile as compiling
from tensorese.deploy import compile_run
from tensorese.deploy.compile import Timing
from tensorese.search.loop import either_way
from tensorese.search.loop.events import Callback
from tensorese.tvm_env import import_tvm
from tensorese.workloads import attention

pytestmark = pytest.mark.tvm

QUICK = Timing(rounds=1, secs=0.02)


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "quick", lambda: [])
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import_tvm()
    import torch
    from torch import nn

    class Attends(nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1) @ v

    path = tmp_path_factory.mktemp("model") / "attends.pt2"
    return export(Attends(), tuple(torch.randn(2, 20, 16) for _ in range(3)), path)


@pytest.mark.parametrize(("estimate", "secs", "way"), [(1, 1.0, 0), (0, 1e-12, 1)])
def test_what_was_measured_decides_and_the_library_is_verified(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    estimate: int,
    secs: float,
    way: int,
) -> None:
    """The kernel takes as long as the test says, and the estimate is wrong."""
    timed: list[int] = []

    def latencies(farm: Any, kernels: list[Any]) -> list[float]:
        timed.append(len(kernels))
        return [secs] * len(kernels)

    monkeypatch.setattr(api._Site, "latencies", latencies)
    monkeypatch.setattr(api, "_DECIDING", 1.0)
    monkeypatch.setattr(either_way, "_NOISE", 0.0)
    monkeypatch.setattr(attention, "fused", lambda key: estimate)
    options: dict[str, Any] = {"trials": 24, "ranker": "none", "compile": False}
    notes: list[str] = []

    class Watch(Callback):
        def on_note(self, text: str) -> None:
            notes.append(text)

    run = api.tune(str(model), out=tmp_path / "run", callbacks=[Watch()], **options)
    (one,) = run.ways
    assert timed == [1] and one.decided and one.ways[0].m == way
    assert f"{way} of 1 attentions in one kernel, 1 decided by measuring" in notes
    certificate = compile_run(run.path, timing=QUICK)
    assert certificate["attention"] is (way == 1) and not certificate["winograd"]
    assert certificate["ways"] == [one.to_dict()]
    assert certificate["verification"]["against"]["untuned"]["passed"]
    kernels = [row["kernel"] for row in certificate["kernels"]]
    assert any("attention" in kernel for kernel in kernels) is (way == 1)
    assert any("softmax" in kernel for kernel in kernels) is (way == 0)
    again = api.tune(str(model), out=tmp_path / "run", **options)
    assert (again.trials, again.ways, timed) == (run.trials, run.ways, [1])
