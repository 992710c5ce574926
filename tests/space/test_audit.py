"""Every kind of operator, on CPU and CUDA, at the sizes the numbers in docs/space.md are for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

OPERATORS = (
    "matmul",
    "dense_relu",
    "batch_matmul",
    "transpose_batch_matmul",
    "conv1d",
    "conv2d",
    "conv2d_3x3",
    "conv3d",
    "dilated_conv2d",
    "depthwise_conv2d",
    "grouped_conv2d",
    "transposed_conv2d",
    "conv2d_bn_relu",
    "softmax",
    "norm",
    "max_pool2d",
    "global_average_pool",
    "elementwise",
)


@pytest.mark.parametrize("kind", ["llvm", "cuda"])
@pytest.mark.parametrize("name", OPERATORS)
def test_legality_agrees_with_tvm(name: str, kind: str) -> None:
    from space_audit import examine

    job = {"operator": name, "kind": kind}
    row = examine(job, legal=504, stock=204, builds=4)
    assert row["reasons"] == []
    assert row["covered"] == row["sketches"]
    assert row["called_legal"] >= 500
    assert row["were_legal"] >= 0.99 * row["called_legal"]
    assert row["stock_accepted"] >= 200
    assert row["we_accepted"] >= 0.99 * row["stock_accepted"]
    assert row["compiled"] == 4


def test_the_list_is_complete() -> None:
    from space_audit import operators

    assert set(OPERATORS) == set(operators())
