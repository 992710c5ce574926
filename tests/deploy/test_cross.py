"""Libraries for another processor: linked by its cross compiler; their kernels run under qemu."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorese
from tensorese.cli import run as run_cli
from tensorese.deploy.apply import kernels_of, normalised
from tensorese.deploy.folder import read_run
from tensorese.deploy.prepare import prepare_run
from tensorese.measure import reference
from tensorese.measure.base import Ticket
from tensorese.measure.jobs import Job
from tensorese.measure.reference.expressions import Array
from tensorese.targets import Target

pytestmark = pytest.mark.tvm

TRIPLE = "aarch64-linux-gnu"
ARM = json.dumps({"kind": "llvm", "mtriple": TRIPLE, "mcpu": "cortex-a76", "num-cores": 4})
_EM_AARCH64 = 183


def test_a_missing_cross_compiler_is_one_line_before_the_model_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = ["tune", "no/such/model.onnx", "--target", ARM]
    for more in (["--trials", "0"], ["--rpc-tracker", "127.0.0.1:9", "--rpc-key", "board"]):
        assert run_cli([*told, *more]) == 2
        line = capsys.readouterr().err.strip()
        assert line.endswith("apt-get install gcc-aarch64-linux-gnu") and "\n" not in line
    assert run_cli([*told, "--trials", "9", "--no-compile"]) == 2
    assert "tuning for aarch64-linux-gnu needs devices of it" in capsys.readouterr().err
    assert run_cli([*told, "--trials", "0", "--no-compile"]) == 2
    assert "no/such/model.onnx" in capsys.readouterr().err, "nothing is linked"


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What calls a kernel of a library, built for the target."""
    needed = (f"{TRIPLE}-gcc", "qemu-aarch64")
    absent = [name for name in needed if shutil.which(name) is None]
    if absent or not Path(f"/usr/{TRIPLE}/lib/libm.so.6").exists():
        packages = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
        pytest.skip(f"kernels for {TRIPLE} are tried with: apt-get install {packages}")
    made: Path = tmp_path_factory.mktemp("caller") / "run_kernel"
    source = Path(__file__).with_name("run_kernel.c")
    flags = ["-O1", "-Wl,--no-as-needed", "-lm", "-lpthread", "-ldl"]
    subprocess.run([needed[0], str(source), "-o", str(made), *flags], check=True)
    return made


def call(caller: Path, library: Path, kernel: str, arrays: Sequence[Array]) -> list[Array]:
    """The arrays after the call."""
    files = [caller.with_name(f"{at}.bin") for at in range(len(arrays))]
    for file, array in zip(files, arrays, strict=True):
        array.tofile(file)
    told = [f"{f}:{'x'.join(map(str, a.shape))}" for f, a in zip(files, arrays, strict=True)]
    command = ["qemu-aarch64", "-L", f"/usr/{TRIPLE}", caller, library, f"__tvm_ffi_{kernel}"]
    done = subprocess.run([*map(str, command), *told], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (kernel, done.stderr)
    return [np.fromfile(f, np.float32).reshape(a.shape) for f, a in zip(files, arrays, strict=True)]


def agrees(caller: Path, library: Path, kernel: str, module: Any) -> None:
    """With numpy's answer to what the module says."""
    inputs, wanted = reference.reference_case(module, 0)
    written, feed = reference.output_indices(module), iter(inputs)
    poison = iter(np.full_like(array, np.nan) for array in wanted)
    n = len(inputs) + len(wanted)
    arrays = [next(poison) if at in written else next(feed) for at in range(n)]
    got = call(caller, library, kernel, arrays)
    rtol, atol = reference.tolerance("float32", reference.reduction_length(module))
    for at, want in zip(written, wanted, strict=True):
        verdict = reference.compare(got[at], want, rtol, atol)
        assert verdict.passed, (kernel, verdict)


@pytest.mark.slow
def test_kernels_of_a_library_compute_there_what_numpy_says(caller: Path, tmp_path: Path) -> None:
    import torch

    class Attention(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return torch.tanh(torch.softmax(q @ k, -1) @ q)

    inputs = (torch.randn(256, 64), torch.randn(64, 256))
    run = tensorese.tune(Attention(), inputs, target=ARM, trials=0, out=tmp_path / "run")
    library = run.path / "library.so"
    assert int.from_bytes(library.read_bytes()[18:20], "little") == _EM_AARCH64
    assert TRIPLE in run.certificate["verification"]["skipped"]
    built = prepare_run(read_run(run.path), lambda text: None)
    kernels = {v.name_hint: normalised(f) for v, f in kernels_of(built.prepared).items()}
    assert len(kernels) >= 3 and len(built.applied.tuned) >= 3
    for name, module in kernels.items():
        agrees(caller, library, f"{name}_scheduled", module)


@pytest.mark.slow
def test_what_a_farm_builds_for_a_tracker_computes_there_what_numpy_says(
    caller: Path, tmp_path: Path
) -> None:
    import farm_support as programs
    from tensorese.measure.build_worker import build

    for at, candidate in enumerate(programs.good(256)[2:4]):
        made = str(tmp_path / f"{at}.so")
        job = Job(at, 0, candidate, Ticket(1), {}, artifact=made)
        assert build(job.build_message(Target.parse(ARM)))["error"] == ""
        agrees(caller, Path(made), "main", programs.matmul(256))
