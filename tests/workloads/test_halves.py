"""Half-precision torch programs, compared with the same in float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tensorese.tvm_env import import_tvm
from tensorese.workloads import NetworkError, prepare
from workload_support import compiled_outputs, host, network_of

pytestmark = pytest.mark.tvm


class Added(nn.Module):
    """A bias before a product: what GPT-2 is made of."""

    def __init__(self, **factors: float) -> None:
        super().__init__()
        self.factors = factors
        self.bias, self.weight = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight, **self.factors)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 8), nn.GELU()), (4, 16)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU()), (1, 3, 8, 8)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 4, 2, 2), (1, 4, 4, 4)),
    "sum and product": (lambda: Added(), (4, 16)),
    "with factors": (lambda: Added(beta=0.5, alpha=2), (4, 16)),
}


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", MODULES)
def test_operators_that_tvm_does_not_take_as_they_are(name: str, kind: torch.dtype) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(0)
    network = network_of(make().to(kind), torch.randn(shape).to(kind))
    assert network.widened is not None
    (want,) = network.widened(network.example(0))
    (got,) = compiled_outputs(network, host())
    assert got.dtype.name == str(kind).removeprefix("torch.")
    error = np.abs(got.astype(np.float32) - want).max() / np.abs(want).max()
    assert 0 < error < 0.0075


def test_what_tvm_cannot_lower_is_one_line() -> None:
    relax = import_tvm().relax
    x, scale = (
        relax.Var(name, relax.TensorType(shape, "bfloat16"))
        for name, shape in (("x", (4, 16)), ("scale", (16,)))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, scale]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.layer_norm(x, scale, scale, axes=[-1]))
        builder.emit_func_output(out)
    with pytest.raises(
        NetworkError, match=r"TVM cannot lower this network: .*layer_norm"
    ) as caught:
        prepare(builder.get(), host())
    assert "\n" not in str(caught.value)
