"""The folder: complete or refused, and nothing in it is executed."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from models_support import physics_model

from tensorese.models.base import CARD, CONFIG, WEIGHTS, Card, ModelError, load_model, save_model

pytestmark = pytest.mark.null


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    card = Card(command="train", training_workloads=("w1", "w2"), metrics={"top1": 0.5})
    return save_model(tmp_path / "model", physics_model(), card)


def _edit(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **changes}))


def test_the_card_tells_what_it_is(saved: Path) -> None:
    text = (saved / CARD).read_text()
    assert text.startswith("# physics for one-1c, two-2c")
    assert "| top1 | 0.5000 |" in text and "physics-cpu" in text


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


@pytest.mark.parametrize("version", [1, 7])
def test_another_version_says_what_to_do(saved: Path, version: int) -> None:
    _edit(saved, version=version)
    with pytest.raises(ModelError, match=rf"version 2, but .* version {version}; train it again"):
        load_model(saved)


def test_an_unknown_kind_names_the_known(saved: Path) -> None:
    _edit(saved, kind="oracle")
    with pytest.raises(ModelError, match=r"one of tlp, .*ensemble.* is 'oracle'"):
        load_model(saved)


def test_weights_of_another_shape(saved: Path) -> None:
    section = json.loads((saved / CONFIG).read_text())["section"]
    _edit(saved, section={**section, "blocks": 9})
    with pytest.raises(ModelError, match="describe one model"):
        load_model(saved)
    _edit(saved, section={**section, "width": 99})
    with pytest.raises(ModelError, match="sizes must be those of the weights"):
        load_model(saved)


@pytest.mark.parametrize("features", [{}, {"name": "physics-cpu"}, {"version": "1"}, [], 3, None])
def test_features_that_are_half_named(saved: Path, features: Any) -> None:
    _edit(saved, features=features)
    with pytest.raises(ModelError, match=r"must describe one model|reads the features"):
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


def test_what_ships_is_asked_without_torch(saved: Path) -> None:
    code = (
        "import sys; from tensorese.models.base import load_model; "
        "from tensorese.search.rankers.by_name import guided; "
        f"guided(load_model({str(saved)!r}), 'one-1c'); "
        "print(sys.modules.keys() & {'torch', 'tvm'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
