"""Movements read out of the rows, and norms that do not tie programs together."""

from __future__ import annotations

import pytest
import torch
from store_support import made_up, small

from tensorese.features.lowered import COARSE, COLUMNS
from tensorese.models.pacm import MOVEMENT, PaCMBody, PaCMConfig, movements_of

pytestmark = pytest.mark.null


def test_the_published_sizes() -> None:
    body = PaCMBody(PaCMConfig(), 1)
    assert MOVEMENT == 23
    shapes = {name: tuple(p.shape) for name, p in body.named_parameters() if p.ndim == 2}
    assert shapes["encoder.first.weight"] == (256, COLUMNS + len(COARSE))
    assert shapes["encoder.second.weight"] == (256, 256)
    assert shapes["movements.0.weight"] == (64, 23)
    assert shapes["movements.2.weight"] == (128, 64)
    assert shapes["join.weight"] == (256, 384)
    assert shapes["head.weight"] == (1, 256)


def test_a_movement_is_a_buffer_of_a_store_and_what_is_around_it() -> None:
    rows = torch.arange(2.0 * COLUMNS).view(1, 2, COLUMNS)
    found, there = movements_of(rows, torch.tensor([[True, True]]))
    assert found.shape == (1, 10, 23) and there.all()
    second = COLUMNS + 57 + 18  # of the second store, its second buffer
    wanted = [*range(second, second + 18), *(COLUMNS + k for k in (157, 159, 161, 162, 163))]
    assert found[0, 6].tolist() == wanted


def test_places_without_a_buffer_are_masked() -> None:
    rows = -torch.ones(1, 2, COLUMNS)
    rows[0, 0, 57 + 18 + 1] = 0.5  # the second buffer is written
    rows[0, 1, 57 + 36 + 3] = 0.5  # bytes are no kind of access
    _, there = movements_of(rows, torch.tensor([[True, True]]))
    assert there.view(2, 5).tolist() == [
        [True, True, False, False, False],
        [True, False, False, False, False],
    ]
    _, there = movements_of(rows, torch.tensor([[True, False]]))
    assert there.sum() == 2


def test_norms_learn_in_training_and_stand_still_in_scoring() -> None:
    body, stores = small("pacm"), made_up()
    body.train()(*stores)
    learnt = body.norm.running_mean.clone()
    assert learnt.abs().sum() > 0
    body.eval()(*made_up(seed=5))
    torch.testing.assert_close(body.norm.running_mean, learnt, rtol=0, atol=0)
