from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytest.importorskip("onnxruntime")
from tensorese.cli.shape_options import fixed_by  # noqa: E402
from tensorese.workloads import Network, load_network  # noqa: E402
from wild_support import EXPORTS, FILES, LIGHT, WHEELS, WildFile, fetch  # noqa: E402
from workload_support import compiled_outputs, host  # noqa: E402

pytestmark = [pytest.mark.tvm, pytest.mark.slow]
LIMIT = 1e-3  # of an output's largest value
ROUNDING = 4 * 2.0**-24  # of one, by which onnxruntime's sigmoid errs: 0 instead of 3e-17
IMPORT_SECONDS = 20.0
TUNED = ("silero_vad_openvino_16k", "recurrent", "bert")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wild")


def fetched(file: WildFile, folder: Path) -> Path:
    if file in EXPORTS:
        pytest.importorskip("onnxscript", reason="needs the extra `wild`")
        pytest.importorskip("transformers", reason="needs the extra `wild`")
    return fetch(file, folder)


def options_of(file: WildFile) -> dict[str, list[str]]:
    pairs = list(zip(file.options[::2], file.options[1::2], strict=True))
    return {name: [v for o, v in pairs if o == f"--{name}"] for name in ("shape", "dim", "value")}


def difference(got: np.ndarray, want: np.ndarray) -> float:
    assert got.shape == want.shape and got.dtype == want.dtype
    assert np.isfinite(got).all()
    x, y = got.astype(np.float64), want.astype(np.float64)
    error = float(np.abs(x - y).max())
    if y.min() >= 0 and y.max() <= 1:
        error = max(0.0, error - ROUNDING)
    return error / (float(np.abs(y).max()) or 1.0)


def compared(network: Network, outputs: list[np.ndarray], seed: int) -> float:
    want = network.reference(network.example(seed))
    return max(difference(g, w) for g, w in zip(outputs, want, strict=True))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_public_file_imports_compiles_and_agrees(file: WildFile, folder: Path) -> None:
    path = fetched(file, folder)
    began = time.monotonic()
    network = load_network(path, **fixed_by(*options_of(file).values()))
    assert time.monotonic() - began < IMPORT_SECONDS
    assert compared(network, compiled_outputs(network, host()), 0) < LIMIT


@pytest.mark.parametrize("name", TUNED)
def test_a_public_file_is_tuned_and_agrees(name: str, folder: Path, tmp_path: Path) -> None:
    import tensorese

    (file,) = [one for one in FILES if one.name == name]
    command = [sys.executable, "-m", "tensorese", "tune", str(fetched(file, folder))]
    command += [*file.options, "--trials", "40", "--out", str(tmp_path / "run"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    head = json.loads((tmp_path / "run" / "run.json").read_text())
    network = load_network(head["model"])
    outputs = tensorese.load(tmp_path / "run")(*network.example(1))
    listed = [outputs] if hasattr(outputs, "shape") else list(outputs)
    assert compared(network, [np.asarray(one) for one in listed], 1) < LIMIT


def test_the_list_is_what_the_wheels_hold(folder: Path) -> None:
    import zipfile

    for file in WHEELS:
        fetch(file, folder)
    held = []
    for wheel in (folder / "wheels").glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            held += [Path(name).name for name in archive.namelist() if name.endswith(".onnx")]
    assert sorted(held) == sorted(file.member for file in WHEELS)
    shipped = (Path(onnx.__file__).parent / "backend/test/data/light").glob("light_*.onnx")
    assert {path.stem for path in shipped} == {file.name for file in LIGHT}
