"""Presets, nests and hidden statements of ATFormer."""

from __future__ import annotations

import pytest
import torch
from store_support import Stores, made_up, small

from tensorese.models.atformer import (
    NEST,
    ATFormer,
    ATFormerBody,
    ATFormerConfig,
    _same_nest,
    _some,
)

pytestmark = pytest.mark.null


def _size(config: ATFormerConfig) -> float:
    return sum(p.numel() for p in ATFormerBody(config, 1).parameters()) / 1e6


def test_presets_have_the_sizes_that_are_recalled() -> None:
    assert _size(ATFormer.preset("1L")) == pytest.approx(1.48, abs=0.01)
    assert _size(ATFormer.preset("default")) == pytest.approx(2.54, abs=0.01)
    assert ATFormer.preset("M") == ATFormerConfig(hidden=0.15)


def test_levels_and_shares_are_checked() -> None:
    with pytest.raises(ValueError, match="levels must be 1 or 2, got 3"):
        ATFormerConfig(levels=3)
    with pytest.raises(ValueError, match=r"share below 1, got 1\.0"):
        ATFormerConfig(hidden=1.0)


def test_statements_of_a_nest_share_product_and_number_of_loops() -> None:
    rows, mask, _ = made_up((4,))
    rows[0, 3, NEST] = rows[0, 2, NEST]
    rows[0, 3, NEST.start] += 1.0
    wanted = torch.eye(4)
    wanted[0, 1] = wanted[1, 0] = 1.0  # `made_up` lets the first two share theirs
    torch.testing.assert_close(_same_nest(rows, mask)[0], wanted)
    mask[0, 1] = False
    assert _same_nest(rows, mask)[0].sum() == 3


def test_a_nest_weighs_as_one_token_at_the_programs_level() -> None:
    """Against a list of tokens made nest by nest."""
    body = small("atformer").eval()
    level = body.program
    mask = torch.ones(1, 4, dtype=torch.bool)
    x, total, coarse = torch.randn(1, 4, 16), torch.randn(1, 16), made_up((4,)).coarse_BC
    same = torch.block_diag(torch.ones(3, 3), torch.ones(1, 1))[None]
    nests = torch.stack([x[:, :3].mean(1), x[:, 3]], dim=1)
    token = total + level.coarse(coarse)
    tokens = level.norm(torch.cat([token[:, None], nests], dim=1))
    wanted = token + level.attention(tokens[:, :1], tokens, torch.zeros(1, 3))[:, 0]
    torch.testing.assert_close(level(total, x, same, mask, coarse), wanted)


def test_a_share_of_the_statements_is_hidden_but_never_all() -> None:
    torch.manual_seed(0)
    mask = torch.arange(20) < torch.tensor([20, 1, 12] * 100)[:, None]
    some = _some(mask, 0.4)
    assert not (some & ~mask).any() and some.any(1).all()
    assert some[::3].float().mean() == pytest.approx(0.6, abs=0.03)


def test_only_training_hides() -> None:
    stores, body = made_up(), small("atformer M")
    torch.manual_seed(1)
    drawn = {round(float(body(*stores)[2, 0].detach()), 5) for _ in range(8)}
    assert len(drawn) > 1
    scored = body.eval()(*stores)
    torch.testing.assert_close(scored, body(*stores), rtol=0, atol=0)


def test_nests_count_with_two_levels_only() -> None:
    rows, mask, coarse = made_up()
    moved = rows.clone()
    moved[:, 1, NEST] += 1e-6  # a nest of its own now, otherwise the same statement
    for name, counts in (("atformer 1L", False), ("atformer", True)):
        body = small(name).eval()
        before, after = (body(*Stores(each, mask, coarse)) for each in (rows, moved))
        assert bool((before - after).abs().max() > 1e-4) == counts
