"""The whole way: a run folder to a verified library, called on arrays and tensors."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy_support import make_run, small_network
from tensorese.cli.compile import lines_of
from tensorese.deploy import DeployError, Library, bench_run, compile_run, load
from tensorese.deploy import compile as compiling
from tensorese.deploy.compile import Timing
from tensorese.deploy.folder import read_run
from tensorese.deploy.prepare import prepare_run
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm

QUICK = Timing(rounds=1, secs=0.02)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_network(tmp_path_factory.mktemp("model") / "small.pt2")


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tasks but the convolution's own neighbours tuned, compiled once for this module."""
    folder = make_run(tmp_path_factory.mktemp("run") / "run", model, programs=3)
    compile_run(folder, timing=QUICK)
    return folder


@pytest.fixture(scope="module")
def library(run: Path) -> Library:
    return load(run)


@pytest.fixture(autouse=True)
def no_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes seconds to start; `run`, made before, has raced against all of them."""
    monkeypatch.setattr(compiling, "quick", lambda: [])


def example() -> Any:
    return np.random.default_rng(1).standard_normal((1, 3, 16, 16), np.float32)


def expected(model: Path, x: Any) -> list[Any]:
    from tensorese.workloads import load_network

    return load_network(str(model)).reference([x])


def test_the_certificate_says_what_was_checked_and_how_fast_it_is(run: Path) -> None:
    certificate = json.loads((run / "certificate.json").read_text())
    against = certificate["verification"]["against"]
    assert against["untuned"]["passed"] and against["torch"]["passed"]
    assert 0 < against["torch"]["max_error"] < against["torch"]["tolerance"] < 1e-3
    assert certificate["latency"].keys() >= {"tuned", "untuned", "torch"}
    assert all(0 < row["latency"] < 1 for row in certificate["latency"].values())
    assert certificate["tasks"]["untuned"] == {}
    assert certificate["explanation"]["sum_of_tasks"] > 0
    assert len(certificate["library"]["sha256"]) == 64


def test_arrays_give_arrays(library: Library, model: Path) -> None:
    x = example()
    head, pooled = library(x)
    for got, want in zip((head, pooled), expected(model, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert isinstance(head, np.ndarray)


def test_outputs_survive_the_next_call(library: Library) -> None:
    x = example()
    first = library(x)[0]
    copy = first.copy()
    library(x + 1)
    np.testing.assert_array_equal(first, copy)


def test_inputs_that_cannot_be_read_in_place_are_copied(library: Library) -> None:
    x = example()
    want = library(x)[0]
    wide = np.zeros((1, 3, 16, 32), np.float32)
    wide[..., ::2] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    room = np.zeros(x.size + 1, np.float32)
    room[1:] = x.ravel()
    for given in (wide[..., ::2], read_only, room[1:].reshape(x.shape)):
        np.testing.assert_array_equal(library(given)[0], want)


def test_tensors_give_tensors(library: Library) -> None:
    import torch

    x = torch.from_numpy(example())
    head, pooled = library(x.requires_grad_())
    assert isinstance(head, torch.Tensor)
    np.testing.assert_array_equal(pooled.numpy(), library(x.detach().numpy())[1])
    last = x.detach().contiguous(memory_format=torch.channels_last)
    np.testing.assert_array_equal(library(last)[0].numpy(), head.numpy())


def test_inputs_are_checked(library: Library) -> None:
    x = example()
    with pytest.raises(DeployError, match=r"1x3x16x16 float32 must hold, but got 3x16x16 float32"):
        library(x[0])
    with pytest.raises(DeployError, match="but got 1x3x16x16 float64"):
        library(x.astype(np.float64))
    with pytest.raises(DeployError, match="2 inputs were given"):
        library(x, x)
    with pytest.raises(DeployError, match="array or a tensor, but got a list"):
        library(x.tolist())
    with pytest.raises(DeployError, match="did you mean 'x'"):
        library(xx=x)
    np.testing.assert_array_equal(library(x=x)[0], library(x)[0])


def test_a_call_leaves_the_caller_where_it_was(library: Library) -> None:
    before = os.sched_getaffinity(0)
    library(example())
    assert os.sched_getaffinity(0) == before


def test_stock_tvm_runs_the_library(run: Path, library: Library) -> None:
    tvm = import_tvm()
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(run / "library.so")), tvm.cpu())
    x = example()
    outputs = machine["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(outputs[0].numpy(), library(x)[0])


def test_stock_tvm_applies_the_database(run: Path) -> None:
    tvm = import_tvm()
    built = prepare_run(read_run(run), lambda _: None)
    target = tvm.target.Target(json.loads(built.run.target))
    with target, tvm.transform.PassContext(opt_level=3):
        applied = tvm.relax.transform.MetaScheduleApplyDatabase(str(run / "database"))(
            built.prepared
        )
    kernels = [f for f in applied.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    scheduled = [f for f in kernels if "tirx.is_scheduled" in f.attrs]
    assert len(scheduled) == len(kernels) == len(built.run.best)


def test_a_changed_library_is_refused(run: Path, tmp_path: Path) -> None:
    for name in ("library.so", "certificate.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    with (tmp_path / "library.so").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DeployError, match="not the library its certificate verified"):
        load(tmp_path)


def test_bench_times_the_shipped_library(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "RIVALS", ("torch",))
    result = bench_run(run, timing=QUICK, untuned=False, unpacked=True)
    assert result["latency"].keys() >= {"tuned", "unpacked", "torch"}
    assert json.loads((run / "bench.json").read_text())["latency"] == result["latency"]


def test_a_wrong_program_is_replaced_by_its_untuned_form_and_the_rest_is_delivered(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights in a foreign order under the one kernel that chose an order."""
    from tensorese.deploy.apply import Kernel

    right = Kernel.packed
    monkeypatch.setattr(
        Kernel, "packed", lambda kernel, args: (_scrambled if kernel.packs else right)(kernel, args)
    )
    run = make_run(tmp_path / "run", model)
    steps: list[str] = []
    certificate = compile_run(run, timing=QUICK, on_step=steps.append)
    replaced = certificate["verification"]["replaced"]
    names = {row["name"] for row in replaced.values()}
    assert "conv2d_add_relu" in names and all(row["error"] > 1e-3 for row in replaced.values())
    assert replaced.keys() == certificate["tasks"]["untuned"].keys()
    assert len(certificate["tasks"]["tuned"]) + len(replaced) == len(read_run(run).best)
    assert any("conv2d_add_relu is replaced by its untuned form" in step for step in steps)
    assert any("conv2d_add_relu was wrong and runs untuned" in s for s in lines_of(certificate))
    x = example()
    np.testing.assert_allclose(load(run)(x)[0], expected(model, x)[0], rtol=1e-4, atol=1e-5)


def test_where_that_does_not_help_nothing_is_shipped(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorese.deploy.apply import Kernel

    monkeypatch.setattr(Kernel, "packed", _scrambled)
    run = make_run(tmp_path / "run", model, only="conv2d")
    with pytest.raises(DeployError, match=r"conv2d_add_relu.*, which is untuned"):
        compile_run(run, timing=QUICK)
    assert not (run / "library.so").exists() and not (run / "certificate.json").exists()


def _scrambled(kernel: Any, arguments: list[Any]) -> list[Any]:
    tvm = import_tvm()
    shapes = [tuple(int(e) for e in p.ty.shape) for p in kernel.function.params]
    made = []
    for argument, shape in zip(arguments, shapes, strict=False):
        if isinstance(argument, tvm.ir.GenericConst):
            array = argument.value.numpy().ravel()[::-1].reshape(shape)
            argument = tvm.relax.const(np.ascontiguousarray(array), "float32")
        made.append(argument)
    return made


def test_a_run_without_any_program_is_the_untuned_network(model: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", model, only="nothing")
    certificate = compile_run(run, timing=QUICK)
    assert certificate["tasks"]["tuned"] == {} and len(certificate["tasks"]["untuned"]) > 2
    assert certificate["explanation"]["causes"]
    assert load(run)(example())[0].shape == (1, 8)


def test_without_packing_the_same_programs_read_weights_as_they_came(
    run: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    certificate = compile_run(copy, timing=QUICK, prepack=False)
    packed = json.loads((run / "certificate.json").read_text())
    assert packed["weights"]["packed"] and not certificate["weights"]["packed"]
    assert certificate["library"]["sha256"] != packed["library"]["sha256"]
    assert certificate["tasks"] == packed["tasks"]


def test_a_run_tuned_without_packing_is_compiled_without(model: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", model, prepack=False)
    certificate = compile_run(run, timing=QUICK)
    assert not certificate["weights"]["packed"] and certificate["tasks"]["untuned"] == {}


@pytest.mark.parametrize("junk", [b"", b"\x7fELF" + b"\0" * 500])
def test_a_library_that_is_none_is_one_line(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "library.so").write_bytes(junk)
    signature = {"target": '{"kind":"llvm","num-cores":1}', "inputs": [], "outputs": []}
    library = {"sha256": hashlib.sha256(junk).hexdigest()}
    certificate = {"signature": signature, "library": library}
    (tmp_path / "certificate.json").write_text(json.dumps(certificate))
    with pytest.raises(DeployError, match="compile again") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
