from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytest.importorskip("onnxruntime")
from onnx_support import floats, model_of, node  # noqa: E402
from tensorese.cli.shape_options import fixed_by  # noqa: E402
from tensorese.workloads import NetworkError  # noqa: E402
from tensorese.workloads.onnx_graph import Fixed, plain, settle  # noqa: E402
from test_onnx_plain import choice  # noqa: E402

pytestmark = pytest.mark.null
PATH = Path("m.onnx")


def two_inputs() -> Any:
    """image [batch, 3, ?, ?] and ids [batch, length]"""
    inputs = {"image": floats(1, 3, 8, 8), "ids": np.zeros((1, 4), np.int64)}
    shapes = {"image": ["batch", 3, -1, None], "ids": ["batch", "length"]}
    nodes = [node("GlobalAveragePool", "image", "y"), node("Identity", "ids", "z")]
    return model_of(nodes, inputs, outputs=["y", "z"], shapes=shapes)


def settled_shapes(model: Any, **fixed: Any) -> dict[str, tuple[int, ...]]:
    found = settle(model, Fixed(**fixed), PATH)
    return {name: tuple(spec.shape) for name, spec in found.inputs.items()}


def test_dimensions_and_shapes_close_what_is_open() -> None:
    dims = {"batch": 2, "length": 5}
    shapes = settled_shapes(two_inputs(), dims=dims, shapes={"image": (2, 3, 16, 8)})
    assert shapes == {"image": (2, 3, 16, 8), "ids": (2, 5)}


def test_all_open_shapes_are_named_with_options_that_work() -> None:
    model = two_inputs()
    with pytest.raises(NetworkError) as caught:
        settle(model, Fixed(), PATH)
    text = str(caught.value)
    assert "'image' is batchx3x?x?" in text and "'ids' is batchxlength" in text
    assert "\n" not in text
    options = shlex.split(text.partition("for example: ")[2])
    assert options[::2] == ["--shape", "--shape"]
    fixed = Fixed(**fixed_by(options[1::2], [], []))
    assert fixed.shapes == {"image": (1, 3, 224, 224), "ids": (1, 128)}
    plain(model, settle(model, fixed, PATH).inputs, {})


def test_the_example_is_tried_and_names_values_that_decide() -> None:
    inputs = {"x": floats(1, 3, 48, 9), "rate": np.array(0)}
    nodes = [
        node("MaxPool", "x", "p", kernel_shape=[48, 1]),
        node("Squeeze", "p two", "s"),  # fits a height of 48 alone
        node("Equal", "rate want", "c"),
        node("Identity", "s", "x2"),
        choice("c"),
    ]
    weights = {"two": np.array([2]), "want": np.array(16000)}
    shapes = {"x": ["n", 3, "h", "w"]}
    model = model_of(nodes, inputs, weights, shapes=shapes)
    with pytest.raises(NetworkError, match=r"--shape x=1x3x48x320 --value rate=16000$"):
        settle(model, Fixed(), PATH)


@pytest.mark.parametrize(
    ("fixed", "says"),
    [
        ({"shapes": {"imag": (1, 3, 8, 8)}}, "no input 'imag'; did you mean 'image'?"),
        ({"shapes": {"image": (1, 3, 8)}}, "'image' of m.onnx is batchx3x?x?, but got 1x3x8"),
        ({"shapes": {"image": (1, 4, 8, 8)}}, "but got 1x4x8x8"),
        ({"shapes": {"": (1, 4)}}, "has inputs image, ids: name the shape's input"),
        ({"dims": {"lenght": 4}}, "no open dimension 'lenght'; did you mean 'length'?"),
        ({"dims": {"batch": 2}, "shapes": {"ids": (1, 4)}}, "but got 1x4"),
        ({"values": {"z": (1,)}}, "no input 'z'; it has ids, image"),
        (
            {"shapes": {"ids": (1, 4)}, "values": {"ids": (1, 2)}},
            "has 4 elements, but --value has 2",
        ),
        (
            {"shapes": {"ids": (1, 1)}, "values": {"ids": (0.5,)}},
            "is int64, but --value has fractions",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(fixed: dict[str, Any], says: str) -> None:
    with pytest.raises(NetworkError) as caught:
        settle(two_inputs(), Fixed(**fixed), PATH)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_value_fills_its_input_and_is_no_input_any_more() -> None:
    fixed = Fixed(shapes={"image": (1, 3, 8, 8), "ids": (1, 3)}, values={"ids": (7,)})
    found = settle(two_inputs(), fixed, PATH)
    assert list(found.inputs) == ["image"]
    assert found.values["ids"].tolist() == [[7, 7, 7]] and found.values["ids"].dtype == np.int64


def test_text_is_no_input() -> None:
    model = two_inputs()
    model.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.STRING
    with pytest.raises(NetworkError, match="must be numbers, but 'ids' is text"):
        settle(model, Fixed(), PATH)
