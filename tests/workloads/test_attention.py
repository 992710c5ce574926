"""Attention in one kernel computes what its operators do, and is found and chosen where it pays."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from onnx_support import model_of, node
from tensorese.tvm_env import import_tvm
from tensorese.workloads import attention as module_attention
from tensorese.workloads import load_network, prepare, tasks_of
from tensorese.workloads.attention import fused
from tensorese.workloads.attention_kernels import attention_kernel, tiles
from tensorese.workloads.choice import Choice
from tensorese.workloads.fixed_kernels import fixed_schedule, is_fixed
from workload_support import host, network_of

pytestmark = pytest.mark.tvm

Shape = tuple[int, ...]


# -- the kernel -------------------------------------------------------------------------------


def _computed(
    arrays: list[np.ndarray], mask: np.ndarray | None, *, safe: bool, lanes: int, registers: int
) -> np.ndarray:
    tvm = import_tvm()
    query, key, value = (array.shape for array in arrays)
    tiled = tiles(query[-2], *value[-2:], lanes=lanes, registers=registers)
    assert tiled is not None
    turned = None if mask is None else np.ascontiguousarray(mask.swapaxes(-1, -2))
    kernel = attention_kernel(
        query,
        key,
        value,
        None if turned is None else turned.shape,
        scale=0.3,
        safe=safe,
        tiled=tiled,
    )
    target = tvm.target.Target({**json.loads(host()), "opt-level": 0})
    built = tvm.build(tvm.IRModule({"main": kernel}), target=target)
    out = tvm.runtime.empty((*query[:-1], value[-1]))
    inputs = arrays if turned is None else [*arrays, turned]
    built["main"](*map(tvm.runtime.tensor, inputs), out)
    return np.asarray(out.numpy())


def _reference(arrays: list[np.ndarray], mask: np.ndarray | None) -> np.ndarray:
    q, k, v = (array.astype("float64") for array in arrays)
    scores = 0.3 * q @ k.swapaxes(-1, -2) + (0 if mask is None else mask)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


@pytest.mark.parametrize("vectors", [(16, 32), (8, 16), (4, 32)], ids=str)
@pytest.mark.parametrize(
    ("heads", "queries", "keys", "dim", "width", "mask"),
    [
        ((1, 2), 197, 197, 64, 64, None),
        ((2, 3), 77, 77, 32, 32, (77, 77)),
        ((2, 1), 33, 150, 80, 80, (1, 150)),
        ((3,), 16, 3, 24, 40, None),
        ((2,), 64, 65, 128, 128, (64, 1)),
    ],
    ids=str,
)
def test_it_computes_what_numpy_does(
    vectors: tuple[int, int],
    heads: Shape,
    queries: int,
    keys: int,
    dim: int,
    width: int,
    mask: Shape | None,
) -> None:
    draw = np.random.default_rng(0).standard_normal
    shapes = [(*heads, queries, dim), (*heads, keys, dim), (*heads, keys, width)]
    arrays = [draw(shape, np.float32) for shape in shapes]
    # Of every head, or one for all.
    masks = [heads, (1,) * len(heads)] if mask else [None]
    for leading in masks:
        added = None if leading is None or mask is None else draw((*leading, *mask), np.float32)
        got = _computed(arrays, added, safe=False, lanes=vectors[0], registers=vectors[1])
        want = _reference(arrays, added)
        assert np.abs(got - want).max() / np.abs(want).max() < 3e-6


def test_rows_that_see_nothing_are_zero_where_the_source_says_so() -> None:
    draw = np.random.default_rng(0).standard_normal
    arrays = [draw((1, 20, 16), np.float32) for _ in range(3)]
    mask = np.triu(np.full((1, 20, 20), -math.inf, np.float32), 1)
    mask[0, 5] = -math.inf
    safe, unsafe = (_computed(arrays, mask, safe=s, lanes=16, registers=32) for s in (True, False))
    assert not safe[0, 5].any() and np.isnan(unsafe[0, 5]).all()
    rest = np.arange(20) != 5
    want = _reference([arrays[0][:, rest], *arrays[1:]], mask[:, rest])
    for got in (safe, unsafe):
        assert np.abs(got[:, rest] - want).max() < 3e-6


def test_scores_too_many_for_the_cache_get_smaller_blocks() -> None:
    few, many = (tiles(4096, keys, 64, lanes=16, registers=32) for keys in (256, 16384))
    assert few is not None and many is not None and few.rows > many.rows == 16
    assert tiles(8, 64, 64, lanes=16, registers=32) is None  # no whole vector of query rows
    assert tiles(64, 64, 30, lanes=16, registers=32) is None


# -- where it is found ------------------------------------------------------------------------


class Attends(nn.Module):
    """Query, key and value of one input, cut into heads; what goes on between them is given."""

    def __init__(self, between: Callable[..., Tensor], heads: int = 2) -> None:
        super().__init__()
        self.between, self.heads = between, heads
        self.projections = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.last = nn.Linear(32, 32)

    def forward(self, x: Tensor, *masks: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            p(x).view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
            for p in self.projections
        )
        y = self.between(q, k, v, *masks).transpose(1, 2).reshape(batch, tokens, width)
        return self.last(y)  # type: ignore[no-any-return]


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1) @ v


def _masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(mask + q @ k.transpose(-1, -2) * 0.25, -1) @ v


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = torch.full((20, 20), -1e9).triu(1)
    return torch.softmax(q @ k.transpose(-1, -2) + mask, -1) @ v


def _sdpa(q: Tensor, k: Tensor, v: Tensor, *mask: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, *mask)


def _shown(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.transpose(-1, -2), -1)
    return weights @ v + weights.sum()


def _across(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2), -2) @ v


def _after(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax((q @ k.transpose(-1, -2) + mask) * 0.5, -1) @ v


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_attention, "fused", lambda key: 1)


def _network(between: Callable[..., Tensor], *masks: Tensor) -> Any:
    torch.manual_seed(0)
    return network_of(Attends(between), torch.randn(2, 20, 32), *masks)


def _kernels(module: Any) -> list[str]:
    tvm = import_tvm()
    functions = [f for f in module.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    alone = [tvm.IRModule({"main": f.with_attr("global_symbol", "main")}) for f in functions]
    assert all(fixed_schedule(one) is one for one in alone if is_fixed(one))
    return [one.script() for one in alone if is_fixed(one)]


@pytest.mark.parametrize(
    ("between", "mask"),
    [
        (_plain, None),
        (_masked, (2, 1, 1, 20)),
        (_masked, (20, 20)),
        (_causal, None),
        (_sdpa, None),
        (_sdpa, (2, 1, 20, 20)),
    ],
    ids=["plain", "padding", "square", "causal", "sdpa", "sdpa-masked"],
)
def test_it_is_one_kernel_and_computes_the_same(
    always: None, between: Callable[..., Tensor], mask: Shape | None
) -> None:
    network = _network(between, *([] if mask is None else [torch.randn(mask)]))
    choice = Choice()
    prepared = prepare(network.module, host(), attention=choice)
    assert choice.asked == {(4, 20, 20, 16, 16, int(mask is not None or between is _causal)): 1}
    _check(network, prepared)
    operators = {task.operator for task in tasks_of(network, host(), attention=True)}
    assert not operators & {"softmax", "batch_matmul"}


def _check(network: Any, prepared: Any) -> None:
    """One kernel, in vectors on every core, that computes what the source does."""
    tvm = import_tvm()
    (script,) = _kernels(prepared)
    assert "T.parallel" in script and "T.vectorized" in script and "T.unroll" in script
    quick = tvm.target.Target({**json.loads(host()), "opt-level": 0})
    machine = tvm.relax.VirtualMachine(tvm.compile(prepared, quick), tvm.cpu())
    made = machine["main"](*map(tvm.runtime.tensor, network.example(0)))
    got = made if hasattr(made, "numpy") else made[0]
    (want,) = network.reference(network.example(0))
    assert np.abs(got.numpy() - want).max() / np.abs(want).max() < 1e-5


def test_it_is_found_in_onnx_with_keys_turned_in_one_step(always: None, tmp_path: Path) -> None:
    inputs = {name: np.zeros((1, 20, 2, 16), np.float32) for name in "qkv"}
    nodes = [
        node("Transpose", "q", "rows", perm=[0, 2, 1, 3]),
        node("Transpose", "k", "columns", perm=[0, 2, 3, 1]),
        node("Transpose", "v", "values", perm=[0, 2, 1, 3]),
        node("MatMul", "rows columns", "products"),
        node("Div", "products four", "scores"),
        node("Add", "scores mask", "masked"),
        node("Softmax", "masked", "weights", axis=-1),
        node("MatMul", "weights values", "y"),
    ]
    four = {"four": np.array(4, np.float32)}
    model = model_of(nodes, {**inputs, "mask": np.zeros((1, 1, 1, 20), np.float32)}, four)
    onnx.save(model, tmp_path / "attends.onnx")
    network = load_network(str(tmp_path / "attends.onnx"))
    _check(network, prepare(network.module, host(), attention=True))


@pytest.mark.parametrize(
    ("between", "mask"),
    [(_shown, None), (_across, None), (_after, (20, 20))],
    ids=["weights are read elsewhere", "softmax over queries", "mask scaled too"],
)
def test_other_products_stay(
    always: None, between: Callable[..., Tensor], mask: Shape | None
) -> None:
    network = _network(between, *([] if mask is None else [torch.randn(mask)]))
    assert not _kernels(prepare(network.module, host(), attention=True))


def test_it_is_for_cpus_and_on_demand(always: None) -> None:
    module = _network(_plain).module
    assert not _kernels(prepare(module, host()))
    assert not _kernels(prepare(module, host(), attention=Choice({(4, 20, 20, 16, 16, 0): 0})))


def test_where_it_pays_for_sure() -> None:
    assert fused((6, 1500, 1500, 64, 64, 0)) == fused((12, 128, 128, 64, 64, 1)) == 1
    assert fused((2, 20, 20, 64, 64, 0)) == 0  # two blocks of 16 rows
