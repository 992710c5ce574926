"""A model that writes is bound to the words of its sentences: others are refused in one line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from tensorese.features.base import feature_set
from tensorese.models.base import CONFIG, WEIGHTS, Card, ModelError, load_model, save_model
from tensorese.models.tlm import TLM, TLMConfig, TLMNetwork

pytestmark = pytest.mark.null

TARGETS = {"one": '{"kind":"llvm","num-cores":2}'}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    network = TLMNetwork(TLMConfig(width=16, layers=1, heads=2))
    return save_model(tmp_path / "tlm", TLM(network, TARGETS), Card(command="train"))


def edit(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **changes}))


def test_its_own_definition_is_read(saved: Path) -> None:
    model = load_model(saved)
    assert model.kind == "tlm" and model.needs == feature_set("sentence")


def test_sentences_of_whole_numbers_are_another_definition(tmp_path: Path) -> None:
    network = TLMNetwork(TLMConfig(width=16, layers=1, heads=2, atomic=True))
    folder = save_model(tmp_path / "atomic", TLM(network, TARGETS), Card(command="train"))
    assert load_model(folder).needs == feature_set("sentence-atomic")
    edit(folder, features={"name": "sentence", "version": feature_set("sentence").version})
    with pytest.raises(ModelError, match=r"has sentence .* this program has sentence-atomic"):
        load_model(folder)


def test_another_definition_is_refused_in_one_line(saved: Path) -> None:
    edit(saved, features={"name": "sentence", "version": "0badcafe"})
    ours = feature_set("sentence").version
    message = rf"has sentence 0badcafe and this program has sentence {ours}; train it again$"
    with pytest.raises(ModelError, match=message) as refused:
        load_model(saved)
    assert "\n" not in str(refused.value)


def test_another_definition_is_named_even_where_its_weights_have_other_shapes(
    saved: Path,
) -> None:
    weights = load_file(saved / WEIGHTS)
    save_file({name: tensor[:1] for name, tensor in weights.items()}, saved / WEIGHTS)
    config = json.loads((saved / CONFIG).read_text())
    digest = hashlib.sha256((saved / WEIGHTS).read_bytes()).hexdigest()
    edit(saved, weights_sha256=digest)
    with pytest.raises(ModelError, match="describe one model"):
        load_model(saved)
    edit(saved, features={**config["features"], "version": "0badcafe"})
    with pytest.raises(ModelError, match="trained with"):
        load_model(saved)


def test_a_model_of_other_features_does_not_pass_for_one_that_writes(saved: Path) -> None:
    edit(saved, features={"name": "physics-cpu", "version": feature_set("physics-cpu").version})
    with pytest.raises(ModelError, match=r"has physics-cpu .* and this program has sentence"):
        load_model(saved)
