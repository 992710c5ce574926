"""What every network on lowered programs keeps: masks, batch-mates, order, gradients."""

from __future__ import annotations

import pytest
import torch
from store_support import SMALL, Stores, made_up, small

pytestmark = pytest.mark.null

every = pytest.mark.parametrize("name", SMALL)
READS_IN_ORDER = {"lstm"}


@every
def test_a_score_a_program_and_platform(name: str) -> None:
    stores = made_up()
    scores = small(name, platforms=3).eval()(*stores)
    assert scores.shape == (4, 3) and torch.isfinite(scores).all()
    assert len(scores.unique()) == scores.numel()


@every
def test_a_program_scores_alone_as_beside_others_whatever_pads_it(name: str) -> None:
    stores, body = made_up(), small(name).eval()
    together = body(*stores)
    for k in range(len(stores.mask_BS)):
        for length in (int(stores.mask_BS[k].sum()), 7):
            torch.testing.assert_close(body(*stores.one(k, length))[0], together[k])


@every
def test_what_stands_in_the_padding_is_not_read(name: str) -> None:
    stores, body = made_up(), small(name).eval()
    dirty = stores.rows_BSF.masked_fill(~stores.mask_BS[..., None], 7.0)
    torch.testing.assert_close(body(dirty, *stores[1:]), body(*stores))
    counted = stores.mask_BS.clone()
    counted[2, -1] = False
    assert not torch.allclose(body(stores.rows_BSF, counted, stores.coarse_BC), body(*stores))


@every
def test_the_order_of_stores_counts_for_a_reader_in_order_only(name: str) -> None:
    stores, body = made_up((5, 5, 5)), small(name).eval()
    shuffled = Stores(stores.rows_BSF[:, [3, 0, 4, 2, 1]], stores.mask_BS, stores.coarse_BC)
    before, after = body(*stores), body(*shuffled)
    if name in READS_IN_ORDER:
        assert (before - after).abs().max() > 1e-4
    else:
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


@every
def test_rows_and_coarse_vector_both_count(name: str) -> None:
    stores, body = made_up(), small(name).eval()
    before = body(*stores)
    other = made_up(seed=2)
    assert (body(other.rows_BSF, *stores[1:]) - before).abs().max() > 1e-4
    assert (body(*stores[:2], other.coarse_BC) - before).abs().max() > 1e-4


@every
def test_every_parameter_learns_and_belongs_to_a_part(name: str) -> None:
    body = small(name).train()
    for seed in range(4):  # a ReLU of few may be silent on one batch
        body(*made_up((4, 6, 5, 3, 6, 4), seed=seed)).square().sum().backward()
    for place, parameter in body.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, place
    parts = {place.partition(".")[0] for place, _ in body.named_parameters()}
    assert {"encoder", "head"} <= parts
