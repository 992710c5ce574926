from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from tensorese.language import Vocabulary
from tensorese.models.folder import (
    CARD,
    CONFIG,
    WEIGHTS,
    Card,
    features_hash,
    load_model,
    save_model,
)
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.tlp import ModelError, TLPConfig
from tensorese.models.trunk import TrunkConfig

pytestmark = pytest.mark.null


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = TLPConfig(trunk=TrunkConfig(width=16, heads=2), members=2, doubt=1.0)
    model = MTLTLP(config, ("a", "b"))
    card = Card(command="train", training_workloads=("w1", "w2"), metrics={"top1": 0.5})
    return save_model(tmp_path / "model", model, card)


def _edit(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **changes}))


def test_round_trip(saved: Path) -> None:
    first, second = load_model(saved), load_model(saved)
    assert first.model.platforms == ("a", "b")
    assert first.model.kind == "mtl-tlp"
    assert (first.model.config.members, first.model.config.doubt) == (2, 1.0)
    assert first.card.training_workloads == ("w1", "w2")
    for one, two in zip(first.model.parameters(), second.model.parameters(), strict=True):
        torch.testing.assert_close(one, two)
    assert "| top1 | 0.5000 |" in (saved / CARD).read_text()


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "boom",))

    path = tmp_path / "model.bin"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelError, match="pickle"):
        load_model(path)
    assert not (tmp_path / "boom").exists()


def test_a_pickle_in_place_of_the_weights(saved: Path) -> None:
    (saved / WEIGHTS).write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ModelError, match="damaged"):
        load_model(saved)


def test_one_changed_byte_is_noticed(saved: Path) -> None:
    data = bytearray((saved / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (saved / WEIGHTS).write_bytes(bytes(data))
    with pytest.raises(ModelError, match="checksum"):
        load_model(saved)


def test_other_features_name_both(saved: Path) -> None:
    _edit(saved, features="feedfeed")
    with pytest.raises(ModelError, match=f"feedfeed and this program has {features_hash()}"):
        load_model(saved)


def test_other_vocabulary_names_both(saved: Path) -> None:
    _edit(saved, vocabulary={"version": 0, "hash": "feedfeedfeedfeed"})
    with pytest.raises(ModelError, match=rf"feedfeedfeedfeed.*{Vocabulary().hash}"):
        load_model(saved)


def test_other_version_names_both(saved: Path) -> None:
    _edit(saved, version=7)
    with pytest.raises(ModelError, match=r"version 1, but .* version 7"):
        load_model(saved)


def test_weights_of_another_shape(saved: Path) -> None:
    config = json.loads((saved / CONFIG).read_text())
    _edit(saved, trunk={**config["trunk"], "width": 32})
    with pytest.raises(ModelError, match="describe one model"):
        load_model(saved)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "damaged"), ("{}", "another program"), ('{"format": "x"}', "another program")],
)
def test_foreign_config(saved: Path, text: str, message: str) -> None:
    (saved / CONFIG).write_text(text)
    with pytest.raises(ModelError, match=message):
        load_model(saved)


def test_missing_pieces(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelError, match=f"no {CONFIG}"):
        load_model(tmp_path)
    (saved / WEIGHTS).unlink()
    with pytest.raises(ModelError, match="has none"):
        load_model(saved)
