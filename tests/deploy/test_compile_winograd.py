"""A library whose convolutions go by Winograd's algorithm, judged by the direct ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy_support import export, make_run
from tensorese import api
from tensorese.deploy import DeployError, bench_run, compile_run, load
from tensorese.deploy import compile as compiling
from tensorese.deploy.compile import Timing
from tensorese.search.loop import either_way
from tensorese.search.loop.events import Callback
from tensorese.tvm_env import import_tvm
from tensorese.workloads import winograd

pytestmark = pytest.mark.tvm

QUICK = Timing(rounds=1, secs=0.02)


@pytest.fixture(scope="module", autouse=True)
def transformed() -> Iterator[None]:
    """Every convolution is transformed, however small; nobody races unless a test asks for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "best_tile", lambda shape, channels: 4)
        patch.setattr(compiling, "quick", lambda: [])
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions with a shortcut."""
    import_tvm()
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(16, 16, 3, padding=1)
            self.second = nn.Conv2d(16, 16, 3, padding=1)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.second(torch.relu(self.first(x))) + x)

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model") / "block.pt2"
    return export(Block(), (torch.randn(1, 16, 12, 12),), path)


@pytest.fixture(scope="module")
def direct(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tuned and compiled directly; its head names no settings."""
    run = make_run(tmp_path_factory.mktemp("direct") / "run", model)
    head = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**head, "config": {}}))
    compile_run(run, timing=QUICK)
    return run


def test_it_is_verified_against_the_direct_network_and_called(
    model: Path, direct: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "quick", lambda: ["torch"])
    run = make_run(tmp_path / "run", model, winograd=True)
    certificate = compile_run(run, timing=QUICK)
    assert certificate["winograd"]
    against = certificate["verification"]["against"]
    assert against["torch"]["passed"]
    assert against["untuned"]["passed"] and 0 < against["untuned"]["max_error"]
    transforms = [row for row in certificate["kernels"] if "winograd_" in row["kernel"]]
    assert len(transforms) == 3
    assert any(row["promised"] is None for row in transforms)  # no program of theirs was searched
    x = np.random.default_rng(0).standard_normal((1, 16, 12, 12), np.float32)
    assert np.abs(load(run)(x) - load(direct)(x)).max() < 1e-4
    result = bench_run(run, timing=QUICK, unpacked=True)
    assert result["latency"].keys() >= {"tuned", "untuned", "unpacked"}


@pytest.mark.parametrize(("secs", "m"), [(1.0, 0), (1e-12, 4)])
def test_what_was_measured_decides_and_the_library_is_verified(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secs: float, m: int
) -> None:
    """The transforms take as long as the test says: then every convolution goes directly."""
    timed: list[int] = []

    def latencies(farm: Any, kernels: list[Any]) -> list[float]:
        timed.append(len(kernels))
        return [secs] * len(kernels)

    monkeypatch.setattr(api._Site, "latencies", latencies)
    monkeypatch.setattr(api, "_DECIDING", 0.5)
    monkeypatch.setattr(either_way, "_NOISE", 0.05 if m == 0 else 1.0)  # else chance decides
    options: dict[str, Any] = {"trials": 24, "ranker": "none", "compile": False}
    notes: list[str] = []

    class Watch(Callback):
        def on_note(self, text: str) -> None:
            notes.append(text)

    run = api.tune(str(model), out=tmp_path / "run", callbacks=[Watch()], **options)
    (one,) = run.ways
    assert timed == [3] and one.decided and one.ways[0].m == m
    assert f"{2 if m else 0} of 2 convolutions by Winograd's algorithm, 2 decided by measuring" in (
        notes
    )
    certificate = compile_run(run.path, timing=QUICK)
    assert certificate["winograd"] is (m == 4)
    assert certificate["ways"] == [one.to_dict()]
    assert one.ways[0].calls.keys() <= certificate["tasks"]["tuned"].keys()
    assert certificate["verification"]["against"]["untuned"]["passed"]
    again = api.tune(str(model), out=tmp_path / "run", **options)
    assert (again.trials, again.ways, timed) == (run.trials, run.ways, [3])


def test_a_wrong_kernel_is_found_among_its_own(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights scrambled on the way into the product: the direct network has no such kernel."""
    from tensorese.deploy.apply import Kernel

    def scrambled(kernel: Any, arguments: list[Any]) -> list[Any]:
        tvm = import_tvm()
        shapes = [tuple(int(e) for e in p.ty.shape) for p in kernel.function.params]
        made = []
        for argument, shape in zip(arguments, shapes, strict=False):
            if isinstance(argument, tvm.ir.GenericConst):
                array = argument.value.numpy().ravel()[::-1].reshape(shape)
                argument = tvm.relax.const(np.ascontiguousarray(array), "float32")
            made.append(argument)
        return made

    monkeypatch.setattr(Kernel, "packed", scrambled)
    run = make_run(tmp_path / "run", model, winograd=True, only="batch_matmul")
    with pytest.raises(DeployError, match=r"first wrong kernel is .*matmul.*, which is untuned"):
        compile_run(run, timing=QUICK)
    assert not (run / "library.so").exists()


def test_what_was_tuned_directly_is_compiled_directly(direct: Path) -> None:
    certificate = json.loads((direct / "certificate.json").read_text())
    assert certificate["winograd"] is False
