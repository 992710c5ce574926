"""The attention baseline against a plain recomputation."""

from __future__ import annotations

import numpy as np
import pytest
from store_support import made_up, small
from torch import nn

from tensorese.arrays import Floats32
from tensorese.models.mha import MHABody, MHAConfig

pytestmark = pytest.mark.null


def _linear(layer: nn.Linear, x: Floats32) -> Floats32:
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def test_each_store_is_scored_and_summed() -> None:
    stores, body = made_up(), small("mha").eval()
    scores = body(*stores).detach().numpy()
    attention = body.attention
    for k, count in enumerate(stores.mask_BS.sum(1).tolist()):
        rows = stores.rows_BSF[k, :count].numpy()
        coarse = np.tile(stores.coarse_BC[k].numpy(), (count, 1))
        x = np.maximum(_linear(body.encoder.first, np.concatenate([rows, coarse], axis=1)), 0)
        x = np.maximum(_linear(body.encoder.second, x), 0)
        query, key, value = (
            _linear(layer, x).reshape(count, attention.heads, -1).transpose(1, 0, 2)
            for layer in (attention.query, attention.key, attention.value)
        )
        weight = np.exp(query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1]))
        mixed = (weight / weight.sum(-1, keepdims=True)) @ value
        x = x + _linear(attention.merge, mixed.transpose(1, 0, 2).reshape(count, -1))
        np.testing.assert_allclose(scores[k], _linear(body.head, x).sum(0), rtol=1e-4, atol=1e-5)


def test_the_published_size() -> None:
    count = sum(p.numel() for p in MHABody(MHAConfig(), 1).parameters())
    assert count / 1e6 == pytest.approx(5.44, abs=0.01)
