"""TabNet's parts: entmax by its definition, norms of ghost batches, steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from store_support import made_up, small

from tensorese.models.tabnet import GhostNorm, TabNetBody, TabNetConfig, entmax

pytestmark = pytest.mark.null


def _by_bisection(x: list[float]) -> list[float]:
    """The threshold at which the weights sum to 1."""
    half = np.array(x) / 2
    low, high = half.max() - 1, half.max()
    for _ in range(100):
        middle = (low + high) / 2
        over = (np.maximum(half - middle, 0) ** 2).sum() > 1
        low, high = (middle, high) if over else (low, middle)
    return list(np.maximum(half - low, 0) ** 2)


def test_entmax_is_where_the_weights_sum_to_one() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(50, 12, generator=generator, dtype=torch.float64) * 3
    x[0] = 0.0
    x[1] = torch.tensor([40.0] + [0.0] * 11)
    weights = entmax(x)
    wanted = torch.tensor([_by_bisection(row.tolist()) for row in x], dtype=torch.float64)
    torch.testing.assert_close(weights, wanted, rtol=1e-6, atol=1e-7)
    assert (weights == 0).any(1).float().mean() > 0.5


def test_gradients_of_entmax_are_right() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(6, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(entmax, (x,))
    flat = torch.tensor([[9.0, 0.0, 0.0]], requires_grad=True)
    entmax(flat)[0, 0].backward()  # one column takes all: nothing divides by nothing
    assert flat.grad is not None and torch.isfinite(flat.grad).all()


def test_ghost_batches_are_normalised_apart() -> None:
    norm = GhostNorm(3, TabNetConfig(ghost=4)).train()
    x = torch.randn(8, 3)
    x[4:] += 5.0
    out = norm(x)
    for part in (out[:4], out[4:]):
        torch.testing.assert_close(part.mean(0), torch.zeros(3), atol=1e-5, rtol=0)


def test_statistics_leave_padding_out() -> None:
    stores = made_up((2, 2, 2))
    wide = tuple(
        torch.nn.functional.pad(t, pad)
        for t, pad in ((stores.rows_BSF, (0, 0, 0, 5)), (stores.mask_BS, (0, 5)))
    )
    bodies = small("tabnet").train(), small("tabnet").train()
    bodies[0](*stores)
    bodies[1](*wide, stores.coarse_BC)
    for one, other in zip(*(body.buffers() for body in bodies), strict=True):
        torch.testing.assert_close(one, other)


def test_steps_of_the_published_model() -> None:
    body = TabNetBody(TabNetConfig(), 1)
    assert len(body.encoder.read) == 7
    assert body.encoder.look[0].weight.shape[1] == 64
    assert body.encoder.out.weight.shape == (256, 64)
    shared = body.encoder.first.layers[0].weight
    assert all(step.layers[0].weight is shared for step in body.encoder.read)
