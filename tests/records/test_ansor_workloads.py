from __future__ import annotations

import json

import pytest

from tensorese.records.importers.ansor_workloads import pads, workload_of_key

pytestmark = pytest.mark.null


def shapes(key: str) -> list[tuple[int, ...]]:
    return [spec.shape for spec in workload_of_key(key).args]


def test_same_valid_and_integers_are_one_convolution_when_they_mean_one() -> None:
    head = '["conv2d_layer", 128, 64, 56, 56, 64, 3, 3, 1, '
    same, one, zero, valid = (
        workload_of_key(f"{head}{padding}]") for padding in ('"SAME"', "1", "0", '"VALID"')
    )
    assert same.id == one.id
    assert zero.id == valid.id
    assert same.id != zero.id
    assert same.args[-1].shape == (128, 64, 56, 56)
    assert zero.args[-1].shape == (128, 64, 54, 54)


@pytest.mark.parametrize(
    ("padding", "kernel", "expected"),
    [
        ("SAME", (1, 1), [0, 0, 0, 0]),
        ("SAME", (5, 7), [2, 3, 2, 3]),
        ("SAME", (2, 4), [1, 2, 0, 1]),
        ("VALID", (3, 3), [0, 0, 0, 0]),
        (2, (5, 5), [2, 2, 2, 2]),
        ([1, 2], (3, 3), [1, 2, 1, 2]),
    ],
)
def test_pads(padding: object, kernel: tuple[int, int], expected: list[int]) -> None:
    assert pads(padding, kernel) == expected


def test_strided_outputs_match_the_logged_loops() -> None:
    """The log of this task splits loops of 128, 336, 21, 21, 5, 5."""
    key = '["depthwise_conv2d_layer", 128, 336, 42, 42, 5, 5, 2, "SAME"]'
    assert shapes(key)[-1] == (128, 336, 21, 21)


def test_one_name_with_two_meanings() -> None:
    tutorial = workload_of_key('["conv2d_layer", 1, 7, 7, 512, 256, 3, 3, [1, 1], [1, 1]]')
    assert tutorial.operator == "conv2d_bias_relu"
    assert [a.shape for a in tutorial.args] == [
        (1, 256, 7, 7),
        (512, 256, 3, 3),
        (1, 512, 1, 1),
        (1, 512, 7, 7),
    ]


def test_matmul_is_m_k_n() -> None:
    assert shapes('["matmul_layer", 128, 4032, 1000]') == [(128, 4032), (4032, 1000), (128, 1000)]
    typed = workload_of_key('["ansor_mm", 128, 4032, 1000, "float32"]')
    assert typed.id == workload_of_key('["matmul_layer", 128, 4032, 1000]').id
    half = workload_of_key('["ansor_mm", 128, 4032, 1000, "float16"]')
    assert half.id != typed.id


def test_a_graph_hash_keeps_its_shapes_and_admits_what_it_does_not_know() -> None:
    digest = "6d125280c99b3732e95e03b4ef2b5fb7"
    nested = workload_of_key(json.dumps([digest, [1, 28, 128], [4, 3]]))
    assert nested.operator == "subgraph"
    assert [(a.shape, a.dtype) for a in nested.args] == [
        ((1, 28, 128), "unknown"),
        ((4, 3), "unknown"),
    ]
    flat = workload_of_key(json.dumps([digest, 1, 28, 128]))
    assert flat.attributes == {"dag": digest, "shape": [1, 28, 128]}


@pytest.mark.parametrize(
    "key",
    [
        '["never_seen", 1, [2, 3], "float32", {"a": 1}]',
        '["matmul_layer"]',
        '["matmul_layer", 1, 2, 3, 4]',
        '["conv2d_layer", "1", 64, 56, 56, 64, 3, 3, 1, "SAME"]',
        '["sparse_dense", 512, 512, 512, [9831, 16, 1], [9831], [33], "float32"]',
    ],
)
def test_unknown_keys_become_workloads_of_their_own(key: str) -> None:
    workload = workload_of_key(key)
    assert (workload.key, workload.operator) == (key, json.loads(key)[0])
    other = key.replace("1", "8", 1)
    assert other == key or workload_of_key(other).id != workload.id


def test_pooling_modes_and_kernels_are_told_apart() -> None:
    keys = [
        '["pool_layer", "max", 128, 64, 112, 112, 3, 3, 2, "SAME"]',
        '["pool_layer", "max", 128, 64, 112, 112, 3, 3, 2, "VALID"]',
        '["pool_layer", "avg", 128, 64, 112, 112, 3, 3, 2, "SAME"]',
    ]
    assert len({workload_of_key(key).id for key in keys}) == 3


def test_reductions() -> None:
    assert shapes('["reduction_layer", [128, 512, 1024], 2, false]') == [
        (128, 512, 1024),
        (128, 512),
    ]
    assert shapes('["reduction_layer", [128, 512], 1, true]') == [(128, 512), (128, 1)]
