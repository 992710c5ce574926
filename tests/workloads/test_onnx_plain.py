from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402

from onnx_support import (  # noqa: E402
    floats,
    made_plain,
    model_of,
    node,
    operators_of,
    outputs_of,
)
from tensorese.workloads import NetworkError  # noqa: E402
from tensorese.workloads.onnx_graph.graph import ShapeClash, Undecided  # noqa: E402

pytestmark = pytest.mark.null


def check(
    model: Any, inputs: dict[str, np.ndarray], gone: str = "", limit: float = 1e-5
) -> set[str]:
    """The plain model computes what the model does, without `gone`; its operators."""
    made = made_plain(model, inputs)
    for got, want in zip(outputs_of(made.model, inputs), outputs_of(model, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=limit, atol=limit)
    assert not gone or gone not in operators_of(made.model)
    assert not made.notes
    return operators_of(made.model)


# -- recurrent -------------------------------------------------------------------------------

STEPS, BATCH, WIDTH, HIDDEN = 4, 3, 5, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(op: str, direction: str, extra: str = "", **attributes: Any) -> tuple[Any, Any]:
    """With biases, states in and states out; `extra` is the sequences' lengths."""
    ways, gates = 2 if direction == "bidirectional" else 1, GATES[op]
    weights = {
        "w": floats(ways, gates * HIDDEN, WIDTH, seed=1),
        "r": floats(ways, gates * HIDDEN, HIDDEN, seed=2),
        "b": floats(ways, 2 * gates * HIDDEN, seed=3),
    }
    inputs = {"x": floats(STEPS, BATCH, WIDTH), "h": floats(ways, BATCH, HIDDEN, seed=4)}
    names = f"x w r b {extra or '-'} h"
    outputs = ["y", "hn"]
    if op == "LSTM":
        inputs["c"] = floats(ways, BATCH, HIDDEN, seed=5)
        names += " c"
        outputs.append("cn")
    if extra:
        inputs["lengths"] = np.array([4, 1, 3], np.int32)
    one = node(op, names, " ".join(outputs), hidden_size=HIDDEN, direction=direction, **attributes)
    return model_of([one], inputs, weights, outputs), inputs


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", list(GATES))
def test_recurrent_layers_with_states_in_and_out(op: str, direction: str) -> None:
    check(*recurrent(op, direction), gone=op)


@pytest.mark.parametrize("op", list(GATES))
def test_recurrent_layers_over_sequences_of_their_own_length(op: str) -> None:
    model, inputs = recurrent(op, "bidirectional", extra="lengths")
    check(model, inputs, gone=op)


def test_a_gru_may_reset_after_the_product() -> None:
    check(*recurrent("GRU", "bidirectional", linear_before_reset=1), gone="GRU")


def test_an_lstm_without_states_biases_and_a_clip() -> None:
    weights = {"w": floats(1, 24, 5), "r": floats(1, 24, 6, seed=1)}
    inputs = {"x": floats(3, 2, 5)}
    one = node("LSTM", "x w r", "y", hidden_size=6, clip=0.5)
    check(model_of([one], inputs, weights), inputs, gone="LSTM")


# -- other operators ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attributes", [{"time_axis": 0, "batch_axis": 1}, {"time_axis": 1, "batch_axis": 0}]
)
def test_sequences_are_reversed_up_to_their_length(attributes: dict[str, int]) -> None:
    inputs = {"x": floats(3, 3, 2), "n": np.array([1, 3, 2])}
    check(
        model_of([node("ReverseSequence", "x n", **attributes)], inputs), inputs, "ReverseSequence"
    )


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "placed", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("size", [(11, 9), (3, 4), (14, 10)])
def test_resize_in_every_mode(mode: str, placed: str, size: tuple[int, int]) -> None:
    inputs = {"x": floats(1, 2, 7, 5)}
    one = node("Resize", "x - - s", mode=mode, coordinate_transformation_mode=placed)
    model = model_of([one], inputs, {"s": np.array([1, 2, *size])})
    operators = check(model, inputs, limit=1e-4)
    assert ("Resize" in operators) == (mode == "nearest" and size == (14, 10))


def test_resize_with_antialiasing_and_of_one_axis() -> None:
    inputs = {"x": floats(1, 2, 12)}
    one = node("Resize", "x - - s", mode="linear", antialias=1)
    check(model_of([one], inputs, {"s": np.array([1, 2, 5])}, opset=18), inputs, "Resize", 1e-4)


@pytest.mark.parametrize(
    "attributes",
    [{"output_shape": [10, 8]}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}],
)
def test_paddings_of_a_transposed_convolution_are_plain(attributes: dict[str, Any]) -> None:
    inputs, weights = {"x": floats(1, 2, 5, 4)}, {"w": floats(2, 3, 3, 3, seed=1)}
    one = node("ConvTranspose", "x w", strides=[2, 2], **attributes)
    made = made_plain(model_of([one], inputs, weights), inputs)
    names = {a.name for a in made.model.graph.node[0].attribute}
    assert names.isdisjoint({"output_shape", "auto_pad"})
    check(model_of([one], inputs, weights), inputs)


@pytest.mark.parametrize(
    ("one", "inputs"),
    [
        (node("OneHot", "x d v", axis=1), {"x": np.array([[1, -1], [0, 2]])}),
        (node("Pow", "x v"), {"x": np.array([2, 3])}),
        (node("IsInf", "x", detect_negative=0), {"x": np.float32([1, np.inf, -np.inf])}),
        (node("EyeLike", "x", k=1), {"x": floats(3, 4)}),
        (node("LpNormalization", "x", p=1, axis=1), {"x": floats(3, 4)}),
        (node("CastLike", "x v"), {"x": np.array([2, 3])}),
        (node("Celu", "x", alpha=0.7), {"x": floats(3, 4)}),
        (node("LayerNormalization", "x g", "y m d"), {"x": floats(3, 4)}),
    ],
    ids=lambda value: getattr(value, "op_type", None),
)
def test_operators_by_others(one: Any, inputs: dict[str, np.ndarray]) -> None:
    weights = {"d": np.array(3), "v": np.float32([0, 2]), "g": floats(4, seed=1)}
    used = {name: array for name, array in weights.items() if name in one.input}
    outputs = list(one.output)
    check(
        model_of([one], inputs, used, outputs),
        inputs,
        gone=one.op_type if one.op_type != "Pow" else "",
    )


def test_operators_that_onnxruntime_writes_are_taken() -> None:
    inputs = {"x": floats(2, 3, 4)}
    weights = {"w": floats(5, 4, seed=1), "b": floats(5, seed=2), "g": floats(5, seed=3)}
    nodes = [
        node("FusedMatMul", "x w", "a", transB=1, alpha=0.5, domain="com.microsoft"),
        node("BiasGelu", "a b", "c", domain="com.microsoft"),
        node("SkipLayerNormalization", "c a g", "d", epsilon=1e-5, domain="com.microsoft"),
        node("QuickGelu", "d", "y", domain="com.microsoft"),
    ]
    check(model_of(nodes, inputs, weights), inputs, limit=1e-4)


# -- what is folded and dropped ----------------------------------------------------------------


def test_shape_arithmetic_is_computed() -> None:
    inputs = {"x": floats(2, 3, 4)}
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n zeros", "u"),
        node("Concat", "u minus", "t", axis=0),
        node("Reshape", "x t"),
    ]
    weights = {"zero": np.array(0), "zeros": np.array([0]), "minus": np.array([-1])}
    assert check(model_of(nodes, inputs, weights), inputs) == {"Reshape"}


def test_leftovers_are_dropped() -> None:
    inputs = {"x": floats(2, 3).astype(np.float16)}
    nodes = [
        node("Identity", "x", "a"),
        node("Dropout", "a", "b m"),
        node("Cast", "b", "c", to=TensorProto.FLOAT),
        node("Cast", "c", "d", to=TensorProto.FLOAT16),
        node("Relu", "d"),
    ]
    assert check(model_of(nodes, inputs), inputs) == {"Relu"}


@pytest.mark.parametrize("opset", [15, 18])
def test_a_batch_norm_exported_in_training_uses_its_batch(opset: int) -> None:
    inputs = {"x": floats(3, 4, 5)}
    weights = {n: floats(4, seed=i) for i, n in enumerate("sbmv")}
    norm = node("BatchNormalization", "x s b m v", "y n w", training_mode=1, momentum=0.8)
    model = model_of([norm], inputs, weights, ["y", "n", "w"], opset)
    made = made_plain(model, inputs).model
    assert "BatchNormalization" not in operators_of(made)
    wanted = onnx.reference.ReferenceEvaluator(model).run(None, inputs)
    for got, want in zip(outputs_of(made, inputs), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_an_output_may_be_an_input_a_constant_or_another_output() -> None:
    inputs = {"x": floats(2)}
    nodes = [node("Relu", "x", "a"), node("Identity", "a", "b"), node("Shape", "x", "c")]
    model = model_of(nodes, inputs, outputs=["a", "b", "c"])
    assert check(model, inputs) == {"Relu", "Identity"}


def test_functions_are_inlined() -> None:
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from tensorese.workloads.onnx_graph import read

    inputs = {"x": floats(2)}
    model = model_of([helper.make_node("Twice", ["x"], ["y"], domain="own")], inputs)
    opsets = [helper.make_opsetid("", 17)]
    model.functions.append(
        helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", "a a", "b")], opsets)
    )
    model.opset_import.append(helper.make_opsetid("own", 1))
    with TemporaryDirectory() as folder:
        onnx.save(model, f"{folder}/m.onnx")
        made = made_plain(read(Path(folder) / "m.onnx"), inputs)
    assert operators_of(made.model) == {"Add"}


# -- control flow --------------------------------------------------------------------------------


def branch(op: str, name: str) -> Any:
    """Reads `x` from around it."""
    value = helper.make_value_info(name, onnx.TypeProto())
    return helper.make_graph([node(op, "x", name)], "branch", [], [value])


def choice(condition: str) -> Any:
    return node("If", condition, then_branch=branch("Relu", "t"), else_branch=branch("Neg", "e"))


def test_a_decided_branch_is_taken() -> None:
    inputs = {"x": floats(2, 3)}
    nodes = [node("Size", "x", "n"), node("Equal", "n six", "c"), choice("c")]
    assert check(model_of(nodes, inputs, {"six": np.array(6)}), inputs) == {"Relu"}
    assert check(model_of(nodes, inputs, {"six": np.array(7)}), inputs) == {"Neg"}


def test_an_undecided_branch_names_the_input_and_the_option() -> None:
    inputs = {"x": floats(2), "rate": np.array(0)}
    model = model_of(
        [node("Equal", "rate want", "c"), choice("c")], inputs, {"want": np.array(16000)}
    )
    with pytest.raises(Undecided, match=r"value of 'rate'; fix it: --value rate=16000"):
        made_plain(model, inputs)
    fixed = made_plain(model, {"x": inputs["x"]}, {"rate": np.array(16000)})
    assert operators_of(fixed.model) == {"Relu"}


def test_a_counted_loop_is_unrolled() -> None:
    inputs = {"x": floats(3)}
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            node("Identity", "go", "on"),
            node("Add", "a x", "b"),
            node("Cast", "i", "f", to=TensorProto.FLOAT),
            node("Mul", "b f", "s"),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("a", 1, [3])],
        [info("on", TensorProto.BOOL, []), info("b", 1, [3]), info("s", 1, [3])],
    )
    loop = node("Loop", "n true x", "y z", body=body)
    weights = {"n": np.array(4), "true": np.array(True)}
    check(model_of([loop], inputs, weights, ["y", "z"]), inputs, gone="Loop")


def test_a_scan_is_unrolled() -> None:
    inputs = {"x": floats(4, 3), "h": floats(3, seed=1)}
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", "a b", "c"), node("Tanh", "c", "d")],
        "body",
        [info("a", 1, [3]), info("b", 1, [3])],
        [info("c", 1, [3]), info("d", 1, [3])],
    )
    scan = node("Scan", "h x", "y z", body=body, num_scan_inputs=1, scan_input_directions=[1])
    check(model_of([scan], inputs, outputs=["y", "z"]), inputs, gone="Scan")


# -- quantised graphs ----------------------------------------------------------------------------


def scales(**more: np.ndarray) -> dict[str, np.ndarray]:
    found = {"s": np.float32(0.02), "z": np.uint8(100), "ws": np.float32(0.01), "wz": np.int8(0)}
    return {name: np.asarray(array) for name, array in {**found, **more}.items()}


def check_quantised(model: Any, inputs: dict[str, np.ndarray], steps: float) -> set[str]:
    """Within a few steps of the quantised output, and said."""
    made = made_plain(model, inputs)
    assert made.quantised and any("computed in float" in note for note in made.notes)
    (got,), (want,) = outputs_of(made.model, inputs), outputs_of(model, inputs)
    assert np.abs(got.astype(float) - want.astype(float)).max() <= steps
    assert np.abs(want).max() > 10 * steps
    return operators_of(made.model)


def test_quantised_and_dequantised_pairs_become_a_clip() -> None:
    inputs = {"x": 4 * floats(6, 8)}
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w ws wz", "v"),
        node("MatMul", "d v"),
    ]
    weights = scales(w=np.arange(-64, 64, 4).reshape(8, 4).astype(np.int8))
    assert check_quantised(model_of(nodes, inputs, weights), inputs, 0.05) == {
        "Max",
        "Min",
        "MatMul",
    }


def test_dynamically_quantised_products_need_no_scale() -> None:
    inputs = {"x": floats(4, 8)}
    nodes = [
        node("DynamicQuantizeLinear", "x", "q qs qz"),
        node("MatMulInteger", "q w qz wz", "i"),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Mul", "qs ws", "both"),
        node("Mul", "f both"),
    ]
    weights = scales(w=np.arange(-64, 64, 4).reshape(8, 4).astype(np.int8))
    assert check_quantised(model_of(nodes, inputs, weights), inputs, 0.05) == {"MatMul", "Mul"}


def test_quantised_convolutions_give_whole_numbers_where_they_are_read() -> None:
    inputs = {"x": floats(1, 2, 6, 6)}
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QLinearConv", "q s z w ws wz s z b", "c", pads=[1, 1, 1, 1]),
        node("MaxPool", "c", "y", kernel_shape=[2, 2]),
    ]
    weights = scales(
        w=np.random.default_rng(0).integers(-60, 60, (3, 2, 3, 3)).astype(np.int8),
        b=np.array([100, -900, 0], np.int32),
        ws=np.float32([0.01, 0.02, 0.005]),
        wz=np.zeros(3, np.int8),
    )
    operators = check_quantised(model_of(nodes, inputs, weights), inputs, 3)
    assert "QLinearConv" not in operators


# -- refused -------------------------------------------------------------------------------------


def test_an_operator_of_a_custom_domain_is_named() -> None:
    inputs = {"x": floats(2)}
    model = model_of([node("Frobnicate", "x", domain="custom")], inputs)
    with pytest.raises(NetworkError, match="Frobnicate is of domain 'custom'"):
        made_plain(model, inputs)


def test_shapes_that_depend_on_values_are_refused_unless_these_are_constant() -> None:
    inputs = {"x": floats(2)}
    model = model_of([node("NonZero", "x")], inputs)
    with pytest.raises(NetworkError, match="that of NonZero '' depends on values"):
        made_plain(model, inputs)
    nodes = [node("NonZero", "c", "p"), node("Gather", "x p")]
    assert check(model_of(nodes, inputs, {"c": np.array([0, 1])}), inputs) == {"Gather"}


def test_shapes_that_do_not_fit_are_said() -> None:
    inputs = {"x": floats(2, 3)}
    model = model_of([node("MatMul", "x w")], inputs, {"w": floats(4, 5)})
    with pytest.raises(ShapeClash, match="the shapes do not fit MatMul '' of 2x3, 4x5"):
        made_plain(model, inputs)


def test_a_rewriting_that_does_not_fit_leaves_the_operator_and_says_so() -> None:
    inputs = {"x": floats(1, 1, 4, 4)}
    one = node(
        "Resize", "x r - s", mode="linear", coordinate_transformation_mode="tf_crop_and_resize"
    )
    weights = {"r": np.float32([0, 0, -1, -1, 1, 1, 2, 2]), "s": np.array([1, 1, 3, 3])}
    made = made_plain(model_of([one], inputs, weights), inputs)
    assert operators_of(made.model) == {"Resize"}
    assert made.notes == (
        "Resize stays as it is, rewriting it failed: Resize that crops beyond the image",
    )
