from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytest.importorskip("onnxruntime")
from onnx_support import floats, made_plain, model_of, node  # noqa: E402
from tensorese.workloads import NetworkError  # noqa: E402
from tensorese.workloads.onnx_graph import read  # noqa: E402

pytestmark = pytest.mark.null
WEIGHT = floats(64, 64)


def saved(folder: Path, location: str = "m.data") -> Path:
    """A file whose weight lies beside it."""
    inputs = {"x": floats(1, 64)}
    model: Any = model_of([node("MatMul", "x w")], inputs, {"w": WEIGHT})
    path = folder / "m.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    if location != "m.data":
        stored = onnx.load(str(path), load_external_data=False)
        stored.graph.initializer[0].external_data[0].value = location
        path.write_bytes(stored.SerializeToString())
    return path


def test_data_beside_the_file_is_read(tmp_path: Path) -> None:
    (tensor,) = read(saved(tmp_path)).graph.initializer
    assert np.array_equal(onnx.numpy_helper.to_array(tensor), WEIGHT)


def test_missing_data_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "m.data").unlink()
    with pytest.raises(NetworkError, match=r"keeps 'w' in .*m\.data, which is missing"):
        read(path)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../secret", "..\\secret"])
def test_data_outside_the_folder_is_not_opened(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    with pytest.raises(NetworkError, match="must lie in the model's folder"):
        read(saved(folder, location))


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = saved(folder)
    (folder / "m.data").rename(tmp_path / "secret")
    (folder / "m.data").symlink_to(tmp_path / "secret")
    with pytest.raises(NetworkError, match="external data"):
        read(path)


def test_damaged_data_is_said_in_a_line(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "m.data").write_bytes(b"short")
    with pytest.raises(NetworkError) as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("field", "value"), [("dims", [2**62, 5]), ("data_type", 99)])
def test_weights_of_impossible_sizes_are_a_line(field: str, value: Any) -> None:
    model = model_of([node("MatMul", "x w")], {"x": floats(4, 8)}, {"w": floats(8, 5)})
    (tensor,) = model.graph.initializer
    if field == "dims":
        del tensor.dims[:]
        tensor.dims.extend(value)
    else:
        tensor.data_type = value
    with pytest.raises(NetworkError, match="cannot be made plain"):
        made_plain(model, {"x": floats(4, 8)})
