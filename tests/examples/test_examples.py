"""Every example as a user runs it: its own process, a folder of its own, few minutes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "examples.md"


def run_example(name: str, *arguments: str, cwd: Path, **environment: str) -> str:
    """What it prints; it must succeed."""
    command = [str(EXAMPLES / name), *arguments]
    if name.endswith(".py"):
        command.insert(0, sys.executable)
    settings = {**os.environ, "PYTHON": sys.executable, **environment}
    done = subprocess.run(
        command, cwd=cwd, env=settings, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def sum_of(printed: str) -> float:
    found = re.search(r"sum (\S+)", printed)
    assert found, printed
    return float(found[1])


@pytest.fixture(scope="module")
def onnx_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("onnx")
    printed = run_example("tune_onnx.py", "--minutes", "0.4", "--out", "run", cwd=folder)
    yield folder / "run", printed


@pytest.mark.null
def test_every_example_is_on_the_page_and_in_a_test() -> None:
    names = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    page, here = PAGE.read_text(), Path(__file__).read_text()
    assert len(names) >= 7
    for name in names:
        assert f"examples/{name}" in page
        assert f'"{name}"' in here or name == "deploy.cc"  # which deploy_cpp.sh builds
    for path in EXAMPLES.glob("*.py"):
        compile(path.read_text(), str(path), "exec")
        assert len(path.read_text().splitlines()) <= 90


@pytest.mark.tvm
def test_the_cpp_example_fits_the_installed_headers() -> None:
    import tvm_ffi

    headers = Path(tvm_ffi.__file__).parent / "include"
    flags = ["-std=c++17", "-Wall", "-Werror", "-fsyntax-only", f"-isystem{headers}"]
    subprocess.run(["g++", *flags, str(EXAMPLES / "deploy.cc")], check=True)


@pytest.mark.tvm
@pytest.mark.slow
def test_an_onnx_file(onnx_run: tuple[Path, str]) -> None:
    run, printed = onnx_run
    assert re.search(r"tuned +\d", printed) and re.search(r"onnxruntime +\d", printed)
    assert (run / "report.html").exists()
    certificate = json.loads((run / "certificate.json").read_text())
    assert certificate["verification"]["against"]["onnxruntime"]["passed"]


@pytest.mark.tvm
@pytest.mark.slow
def test_deploying_from_python_and_from_cpp_gives_the_same(
    onnx_run: tuple[Path, str], tmp_path: Path
) -> None:
    run, _ = onnx_run
    deployed = tmp_path / "deployed"
    deployed.mkdir()
    for name in ("library.so", "certificate.json"):  # all that a deployment needs
        shutil.copy(run / name, deployed)
    printed = run_example("deploy.py", str(deployed), cwd=tmp_path)
    assert "between the two: 0.0e+00" in printed
    image = np.random.default_rng(0).standard_normal((1, 3, 64, 64)).astype(np.float32)
    image.tofile(tmp_path / "image.bin")
    library = str(deployed / "library.so")
    called = [library, "5", str(tmp_path / "image.bin"), "1x3x64x64"]
    from_cpp = run_example("deploy_cpp.sh", *called, cwd=tmp_path)
    assert "output of 10 numbers" in from_cpp and re.search(r"[\d.]+ ms", from_cpp)
    assert sum_of(from_cpp) == pytest.approx(sum_of(printed), abs=1e-4)


@pytest.mark.tvm
@pytest.mark.slow
def test_a_torch_module(tmp_path: Path) -> None:
    printed = run_example("tune_torch.py", "--minutes", "0.4", "--out", "run", cwd=tmp_path)
    assert float(printed.splitlines()[-1].split(": ")[1]) < 1e-4


@pytest.mark.tvm
@pytest.mark.slow
def test_a_remote_device(tmp_path: Path) -> None:
    printed = run_example("remote_device.py", "--minutes", "0.3", "--out", "store", cwd=tmp_path)
    measured = re.search(r"store: (\d+) measurements", printed)
    assert measured and int(measured[1]) >= 10, printed
    assert "start serving" in (tmp_path / "store.log").read_text()


@pytest.mark.tvm
@pytest.mark.slow
def test_training_a_model_and_tuning_with_it(tmp_path: Path) -> None:
    store = str(ROOT / "data" / "cpu")
    quick = ["networks=1", "steps=50"]
    printed = run_example(
        "train_model.sh", store, "znver4-2c", "out", *quick, cwd=tmp_path, TRIALS="18"
    )
    assert "top-1" in printed and "tasks tuned with 18 trials" in printed
    head = json.loads((tmp_path / "out" / "run" / "run.json").read_text())
    assert head["config"]["ranker"] != "none"
