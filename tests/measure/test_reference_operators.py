"""Operators as Relax lowers and fuses them, and every intrinsic, against TVM's build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reference_support import module_of, run_in_tvm
from tensorese.measure.reference import (
    Unsupported,
    compare,
    evaluate,
    reduction_length,
    reference_case,
    tolerance,
)
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm

Spec = tuple[tuple[int, ...], str]


def f32(*shape: int) -> Spec:
    return shape, "float32"


def of(dtype: str, *shape: int) -> Spec:
    return shape, dtype


# `r` is tvm.relax.op; the rest are the operator's inputs.
OPERATORS: dict[str, tuple[Callable[..., Any], tuple[Spec, ...]]] = {
    "conv_bias_relu": (
        lambda r, x, w, b: r.nn.relu(r.add(r.nn.conv2d(x, w, padding=1), b)),
        (f32(1, 8, 9, 9), f32(6, 8, 3, 3), f32(1, 6, 1, 1)),
    ),
    "grouped_conv": (
        lambda r, x, w: r.nn.conv2d(x, w, padding=1, groups=4),
        (f32(1, 8, 9, 9), f32(12, 2, 3, 3)),
    ),
    "transposed_conv": (
        lambda r, x, w: r.nn.conv2d_transpose(x, w, strides=2, padding=1),
        (f32(1, 4, 5, 5), f32(4, 6, 4, 4)),
    ),
    "conv3d": (
        lambda r, x, w: r.nn.conv3d(x, w, padding=1),
        (f32(1, 3, 5, 5, 5), f32(4, 3, 3, 3, 3)),
    ),
    "max_pool": (lambda r, x: r.nn.max_pool2d(x, (3, 3), (2, 2), 1), (f32(1, 4, 9, 9),)),
    "avg_pool": (lambda r, x: r.nn.avg_pool2d(x, (3, 3), (2, 2), 1), (f32(1, 4, 9, 9),)),
    "global_pool": (lambda r, x: r.nn.adaptive_avg_pool2d(x, (1, 1)), (f32(1, 4, 9, 9),)),
    "batch_norm": (
        lambda r, x, *p: r.nn.batch_norm(x, *p, axis=1),
        (f32(1, 4, 9, 9), f32(4), f32(4), f32(4), f32(4)),
    ),
    "layer_norm": (
        lambda r, x, a, b: r.nn.layer_norm(x, a, b, axes=-1),
        (f32(3, 5, 16), f32(16), f32(16)),
    ),
    "group_norm": (
        lambda r, x, a, b: r.nn.group_norm(x, a, b, 2, 1, [2, 3]),
        (f32(1, 4, 5, 5), f32(4), f32(4)),
    ),
    "gelu": (lambda r, x: r.nn.gelu(x), (f32(5, 16),)),
    "gelu_tanh": (lambda r, x: r.nn.gelu_tanh(x), (f32(5, 16),)),
    "silu": (lambda r, x: r.nn.silu(x), (f32(5, 16),)),
    "leaky_relu": (lambda r, x: r.nn.leakyrelu(x, 0.1), (f32(5, 16),)),
    "log_softmax": (lambda r, x: r.nn.log_softmax(x, -1), (f32(5, 16),)),
    "argmax": (lambda r, x: r.argmax(x, 1), (f32(40, 16),)),
    "variance": (lambda r, x: r.variance(x, [1]), (f32(4, 30),)),
    "product": (lambda r, x: r.prod(x, [1]), (f32(4, 6),)),
    "minimum": (lambda r, x: r.min(x, [1]), (f32(4, 6),)),
    "take": (lambda r, x, i: r.take(x, i, axis=0), (f32(8, 6), of("int32", 5))),
    "concat": (lambda r, x, y: r.concat([x, y], 1), (f32(3, 4), f32(3, 5))),
    "split": (lambda r, x: r.split(x, 2, 1), (f32(3, 4),)),
    "reshape_transpose": (
        lambda r, x: r.permute_dims(r.reshape(x, (4, 3, 2)), [2, 0, 1]),
        (f32(6, 4),),
    ),
    "strided_slice": (lambda r, x: r.strided_slice(x, [1], [1], [9], [2]), (f32(4, 10),)),
    "where": (lambda r, c, x, y: r.where(c, x, y), (of("bool", 4, 4), f32(4, 4), f32(4, 4))),
    "tril": (lambda r, x: r.tril(x), (f32(6, 6),)),
    "resize": (
        lambda r, x: r.image.resize2d(x, (8, 8), layout="NCHW", method="linear"),
        (f32(1, 2, 4, 4),),
    ),
    "attention": (lambda r, q, k, v: r.nn.attention(q, k, v), (f32(1, 6, 2, 8),) * 3),
    "half_matmul": (
        lambda r, x, y: r.matmul(x, y),
        (of("float16", 12, 64), of("float16", 64, 20)),
    ),
    "mixed_matmul": (
        lambda r, x, y: r.matmul(x, y, out_dtype="float32"),
        (of("float16", 12, 64), of("float16", 64, 20)),
    ),
    "bfloat16_matmul": (
        lambda r, x, y: r.matmul(x, y),
        (of("bfloat16", 12, 64), of("bfloat16", 64, 20)),
    ),
    "int8_matmul": (
        lambda r, x, y: r.matmul(x, y, out_dtype="int32"),
        (of("int8", 12, 64), of("int8", 64, 20)),
    ),
    "quantize": (
        lambda r, x, s, z: r.quantize(x, s, z, axis=1, out_dtype="int8"),
        (f32(4, 6), f32(6), of("int8", 6)),
    ),
}


def lowered(build: Callable[..., Any], specs: tuple[Spec, ...]) -> list[Any]:
    tvm = import_tvm()
    from tvm import relax

    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{k}", relax.TensorType(*spec)) for k, spec in enumerate(specs)]
    with builder.function("main", inputs):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(build(relax.op, *inputs)))
        builder.emit_func_output(output)
    steps = relax.transform
    passes = [steps.LegalizeOps(), steps.AnnotateTIROpPattern(), steps.FuseOps(), steps.FuseTIR()]
    mod = tvm.ir.transform.Sequential(passes)(builder.get())
    functions = [f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    return [tvm.IRModule({"main": f.with_attr("global_symbol", "main")}) for f in functions]


@pytest.mark.parametrize("name", OPERATORS)
def test_evaluates_what_relax_lowers(name: str) -> None:
    build, specs = OPERATORS[name]
    if any(dtype == "bfloat16" for _, dtype in specs):
        pytest.importorskip("ml_dtypes")
    modules = lowered(build, specs)
    assert modules
    for mod in modules:
        inputs, want = reference_case(mod, 0)
        for got, expected in zip(run_in_tvm(mod, inputs, want), want, strict=True):
            limits = tolerance(str(expected.dtype), reduction_length(mod))
            verdict = compare(got, expected, *limits)
            assert verdict.passed and not verdict.note, verdict
        assert np.unique(want[0].astype(np.float64)).size > 1


FLOATS = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.25, 3.7], np.float32)
INTS = np.array([-7, -3, -1, 0, 1, 3, 5, 100], np.int32)

# `t` is tvm.tirx, `x` a float32 and `i` an int32 element.
EXPRESSIONS: dict[str, Callable[..., Any]] = {
    "exp": lambda t, x, i: t.exp(x),
    "log": lambda t, x, i: t.log(t.abs(x)),
    "tanh": lambda t, x, i: t.tanh(x),
    "sigmoid": lambda t, x, i: t.sigmoid(x),
    "sqrt": lambda t, x, i: t.sqrt(t.abs(x)),
    "rsqrt": lambda t, x, i: t.rsqrt(t.abs(x)),
    "erf": lambda t, x, i: t.erf(x),
    "pow": lambda t, x, i: t.power(t.abs(x), x),
    "sin_cos": lambda t, x, i: t.sin(x) + t.cos(x),
    "floor_ceil": lambda t, x, i: t.floor(x) * 16 + t.ceil(x),
    "round": lambda t, x, i: t.round(x) * 16 + t.nearbyint(x),
    "trunc": lambda t, x, i: t.trunc(x),
    "min_max": lambda t, x, i: t.min(x, x * 2) - t.max(x, x * 3),
    "select": lambda t, x, i: t.Select(x > 0, x, x * 3),
    "if_then_else": lambda t, x, i: t.if_then_else(t.any(x > 1, i < 0), x, x / 2),
    "cast": lambda t, x, i: x.astype("int32").astype("float32") + x.astype("float16"),
    "floordiv": lambda t, x, i: t.floordiv(i, 3) * 16 + t.floormod(i, 3),
    "truncdiv": lambda t, x, i: t.truncdiv(i, 3) * 16 + t.truncmod(i, 3),
    "shift": lambda t, x, i: (i >> 1) + (i << 2),
    "bits": lambda t, x, i: (i & 3) + (i | 3) * 16 + (i ^ 3) + (~i),
    "compare": lambda t, x, i: t.all(x >= -1, t.Not(x == 0.5), i <= 5, i != 3),
    "isnan": lambda t, x, i: t.Select(t.isnan(t.log(x)), x, x + 1),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_evaluates_each_expression(name: str) -> None:
    import_tvm()
    from tvm import te, tirx

    a = te.placeholder((8,), name="a")
    b = te.placeholder((8,), "int32", name="b")
    rule = EXPRESSIONS[name]
    out = te.compute((8,), lambda k: rule(tirx, a[k], b[k]).astype("float32"))
    mod = module_of([a, b, out])
    want = evaluate(mod, [FLOATS, INTS])
    got = run_in_tvm(mod, [FLOATS, INTS], want)
    assert compare(got[0], want[0], *tolerance("float32", 1)).passed, (got, want)


def test_refuses_loops_inside_a_block() -> None:
    # Uneven pooling windows are loops whose extent depends on the point.
    mod = lowered(lambda r, x: r.nn.adaptive_avg_pool2d(x, (3, 3)), (f32(1, 4, 7, 7),))[0]
    with pytest.raises(Unsupported, match="inside a block"):
        reference_case(mod, 0)
