"""Attention against torch's own; sums pass padding over."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tensorese.models.store_parts import (
    Attention,
    BatchNorm,
    Residuals,
    bias_of,
    check_heads,
    summed,
)

pytestmark = pytest.mark.null


def test_attention_is_torchs_own() -> None:
    torch.manual_seed(0)
    ours, theirs = Attention(12, 3), nn.MultiheadAttention(12, 3, batch_first=True)
    layers = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
        theirs.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
        theirs.out_proj.load_state_dict(ours.merge.state_dict())
    x, y = torch.randn(2, 4, 12), torch.randn(2, 5, 12)
    mask = torch.tensor([[True] * 5, [True, True, False, True, False]])
    wanted, _ = theirs(x, y, y, key_padding_mask=~mask)
    torch.testing.assert_close(ours(x, y, bias_of(mask)), wanted)


def test_a_program_without_stores_gives_nothing_infinite() -> None:
    x, nobody = torch.randn(1, 3, 8), torch.zeros(1, 3, dtype=torch.bool)
    found = Attention(8, 2)(x, x, bias_of(nobody))
    assert torch.isfinite(found).all()
    assert summed(found, nobody).abs().sum() == 0


def test_a_row_alone_is_normalised_by_what_was_seen_before() -> None:
    norm = BatchNorm(3).train()
    for _ in range(100):
        norm(torch.randn(64, 3) + 2.0)
    one = torch.full((1, 3), 2.0)
    torch.testing.assert_close(norm(one), norm.eval()(one))
    assert norm(one).abs().max() < 0.2 and norm(one[:0]).shape == (0, 3)


def test_residual_blocks() -> None:
    blocks, x = Residuals(3, 2), torch.randn(4, 3)
    after = x + torch.relu(blocks.layers[0](x))
    torch.testing.assert_close(blocks(x), after + torch.relu(blocks.layers[1](after)))


def test_a_width_is_shared_by_its_heads() -> None:
    with pytest.raises(ValueError, match="multiple of heads, got 10, 4"):
        check_heads(10, 4)
