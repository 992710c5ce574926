"""The state that an LSTM ends with is that of the last store there is."""

from __future__ import annotations

import pytest
import torch
from store_support import made_up, small
from torch.nn.utils.rnn import pack_padded_sequence

from tensorese.models.lstm import LSTMBody, LSTMConfig

pytestmark = pytest.mark.null


def test_it_is_torchs_packed_lstm() -> None:
    stores, body = made_up(), small("lstm").eval()
    counts = stores.mask_BS.sum(1)
    encoded = body.encoder(stores.rows_BSF, stores.coarse_BC)
    packed = pack_padded_sequence(encoded, counts, batch_first=True, enforce_sorted=False)
    _, (last, _) = body.cell(packed)
    wanted = body.head(body.residuals(last[0]))
    torch.testing.assert_close(body(*stores), wanted)


def test_the_published_size() -> None:
    count = sum(p.numel() for p in LSTMBody(LSTMConfig(), 1).parameters())
    assert count / 1e6 == pytest.approx(0.771, abs=0.002)
