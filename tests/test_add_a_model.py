"""The example of docs/add-a-model.md as it stands: trained, kept, judged, asked by a search."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tensorese.evaluation.judge import judge_scores
from tensorese.features.programs import ProgramSet
from tensorese.models import base
from tensorese.models.base import Card, load_model, save_model
from tensorese.search.rankers.by_name import guided

pytestmark = pytest.mark.null

PAGE = Path(__file__).parents[1] / "docs" / "add-a-model.md"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    assert len(code.splitlines()) <= 62
    monkeypatch.setattr(base, "_KINDS", dict(base._KINDS))
    module = ModuleType("ridge_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    return module


def test_the_example_is_a_whole_model(example: Any, toy: ProgramSet, tmp_path: Path) -> None:
    trained = example.train_ridge(toy, f"physics-{toy.machine}")
    save_model(tmp_path, trained, Card(command="docs"))
    model = load_model(tmp_path)
    assert model.kind == "ridge" and model.platforms == toy.platforms
    scores = model.rank(model.read_all(toy), "fast").astype(np.float64)
    results = judge_scores(toy, "fast", scores, range(len(toy.tasks)))
    chance = np.mean([result.random[1] for result in results])
    assert np.mean([result.ratio(1) for result in results]) > chance + 0.05
    ranker = guided(model, "fast")
    pair = toy.pairs[0]
    asked = ranker.score(toy.workloads[pair.workload], "fast", pair.sketch, toy.decisions[0])
    assert asked.shape == (len(toy.decisions[0]),) and np.ptp(asked) > 0
