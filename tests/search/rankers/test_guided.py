"""A trained model's word: believed at first, corrected by the run, left when it misleads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models_support import physics_model, store_model, tlp_model

from guided_support import ToyModel, toy_model
from lowered_support import made_up_rows
from search_support import PLATFORM, drawn, measured, seconds, task_state
from tensorese.arrays import Floats32, Ints
from tensorese.features.matrix import MatrixSpec
from tensorese.models.base import Card, Model, save_model
from tensorese.models.tenset_mlp import TenSetMLP, TenSetMLPConfig
from tensorese.records.nouns import Platform, Sketch, Workload
from tensorese.search.contracts import Ranker, TaskState
from tensorese.search.loop.config import TuneError
from tensorese.search.rankers.by_name import LOWERED, SHARE, guided, ranker_named
from tensorese.search.rankers.guided import AutoRanker, Contest, GuidedRanker, read_lowered
from tensorese.search.rankers.online import OnlineRanker
from tensorese.search.rankers.staged import Staged

pytestmark = pytest.mark.null


def _agreement(ranker: Ranker, state: TaskState) -> float:
    """Rank correlation of scores and true speed over rows that nobody has measured."""
    space = state.space.sketches[0]
    rows = space.sample(300, np.random.default_rng(9))
    scores = ranker.score(state.workload, PLATFORM.name, space.sketch, rows)
    speed = [-seconds(0, row) for row in rows.tolist()]
    places = (np.argsort(np.argsort(x)) for x in (scores, speed))
    return float(np.corrcoef(*places)[0, 1])


def test_the_models_word_counts_before_anything_is_measured() -> None:
    state = task_state()
    assert _agreement(GuidedRanker(toy_model(1), "any"), state) > 0.99
    assert _agreement(GuidedRanker(toy_model(-1), "any"), state) < -0.99


class _Divided(ToyModel):
    """All rows are equally fast in the mean of two voters, who agree on some of them only."""

    def speeds(self, inputs: Floats32, platform: str) -> Floats32:
        apart = np.where(inputs > np.median(inputs), 1.0, 0.0).astype(np.float32)
        return np.concatenate([-2.0 - apart, -2.0 + apart], axis=1)


def test_where_voters_disagree_a_program_is_believed_less() -> None:
    state = task_state()
    space = state.space.sketches[0]
    rows = space.sample(100, np.random.default_rng(9))
    ranker = GuidedRanker(_Divided(1.0), "any", optimism=0.0)
    scores = ranker.score(state.workload, PLATFORM.name, space.sketch, rows)
    slow = np.array([seconds(0, row) for row in rows.tolist()])
    divided = slow > np.median(slow)
    assert scores[divided].max() < scores[~divided].min()


def test_a_wrong_word_is_corrected() -> None:
    state = task_state()
    ranker = GuidedRanker(toy_model(-1), "any")
    ranker.update(measured(state, drawn(state, 32)))
    assert _agreement(ranker, state) > 0.5


def test_a_right_word_beats_the_runs_own_labels() -> None:
    state = task_state()
    few = measured(state, drawn(state, 6))
    guided, plain = GuidedRanker(toy_model(1), "any"), OnlineRanker()
    guided.update(few)
    plain.update(few)
    assert _agreement(guided, state) > _agreement(plain, state) + 0.1


def test_the_model_is_asked_once_about_what_is_learnt_from() -> None:
    class Counting(ToyModel):
        asked = 0

        def read(self, workload: Workload, sketch: Sketch, decisions: Any) -> Floats32:
            self.asked += len(np.asarray(decisions))
            return super().read(workload, sketch, decisions)

    model, state = Counting(1.0), task_state()
    ranker = AutoRanker(GuidedRanker(model, "any"))
    batches = [measured(state, drawn(state, 8, seed=k)) for k in range(6)]
    for batch in batches:
        ranker.update(batch)
    # Once to compare the rankers, once to learn: not again with every batch.
    assert model.asked <= 2 * sum(map(len, batches))


def _run(sign: float, batches: int = 12) -> AutoRanker:
    ranker = AutoRanker(GuidedRanker(toy_model(sign), "any"))
    state = task_state()
    for k in range(batches):
        ranker.update(measured(state, drawn(state, 4, seed=k)))
    return ranker


def test_it_stays_while_it_is_right() -> None:
    ranker = _run(1)
    contest = ranker.contests[PLATFORM.name]
    assert not ranker.steps_aside(PLATFORM.name)
    assert contest.first > contest.second
    assert ranker.name == "guided:toytoyto"


def test_it_steps_aside_for_certain_only() -> None:
    contest = Contest()
    right, wrong = np.arange(8.0)[::-1].copy(), np.arange(8.0)
    contest.add(wrong, right, np.arange(8.0))
    assert (contest.first, contest.second) == (0, 28)
    assert not contest.second_is_ahead  # too few pairs to be sure
    contest.add(wrong, right, np.arange(8.0))
    assert contest.second_is_ahead
    for _ in range(2):
        contest.add(right, wrong, np.arange(8.0))
    assert not contest.second_is_ahead  # and it comes back


def test_after_stepping_aside_the_plain_ranker_is_asked() -> None:
    ranker = _run(1)
    ranker.contests[PLATFORM.name].second += 1000
    assert ranker.steps_aside(PLATFORM.name) and not ranker.steps_aside("another")
    state = task_state()
    space = state.space.sketches[0]
    rows = space.sample(20, np.random.default_rng(1))
    plain = ranker.plain.score(state.workload, PLATFORM.name, space.sketch, rows)
    np.testing.assert_array_equal(
        ranker.score(state.workload, PLATFORM.name, space.sketch, rows), plain
    )


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    save_model(tmp_path / "lake-2c", physics_model(("lake-2c",)), Card())
    return tmp_path


def test_auto_says_which_and_why(shelf: Path) -> None:
    ranker, said = ranker_named("auto", Platform(name="lake-2c"), [shelf])
    assert isinstance(ranker, AutoRanker)
    about = "a physics on physics-cpu features"
    assert said == f"starting from the model lake-2c, {about} (trained on lake-2c)"
    _, said = ranker_named("auto", Platform(name="lake-4c"), [shelf])
    assert "no model knows lake-4c; lake-2c is the nearest" in said
    ranker, said = ranker_named("auto", Platform(name="cuda-sm_90"), [shelf])
    assert isinstance(ranker, OnlineRanker) and "learning from this run alone" in said


def test_a_folder_by_name(shelf: Path) -> None:
    ranker, said = ranker_named(str(shelf / "lake-2c"), Platform(name="else"))
    assert isinstance(ranker, AutoRanker) and said.endswith("its head lake-2c")
    state = task_state()
    sketch = state.space.sketches[0]
    rows = sketch.sample(12, np.random.default_rng(0))
    assert np.isfinite(ranker.score(state.workload, "else", sketch.sketch, rows)).all()
    assert isinstance(ranker_named("none", Platform(name="x"))[0], OnlineRanker)
    with pytest.raises(TuneError, match="auto, none or a model's folder"):
        ranker_named("outo", Platform(name="x"))


def test_a_tlp_of_ones_own_learns_from_the_run_too(tmp_path: Path) -> None:
    state = task_state()
    save_model(tmp_path, tlp_model(MatrixSpec(physics=False), ("lake-2c",)), Card())
    ranker, line = ranker_named(str(tmp_path), Platform(name="lake-2c"))
    assert isinstance(ranker, AutoRanker) and "a tlp on matrix features" in line
    ranker.update(measured(state, drawn(state, 32)))
    assert _agreement(ranker, state) > 0.5
    auto, line = ranker_named("auto", Platform(name="lake-2c"), [tmp_path.parent])
    assert isinstance(auto, AutoRanker) and tmp_path.name in line


def test_a_model_that_lowers_judges_a_short_list_alone(tmp_path: Path) -> None:
    asked: list[int] = []

    def lowered(model: Model, workload: Workload, sketch: Sketch, rows: Ints) -> Any:
        asked.append(len(rows))
        return model.read(workload, sketch, rows)

    model = toy_model()
    model.needs = replace(model.needs, lowers=True)
    ranker = guided(model, "any", lowered)
    assert isinstance(ranker, Staged) and not ranker.needs.lowers
    state = task_state()
    space = state.space.sketches[0]
    rows = space.sample(2000, np.random.default_rng(9))
    for n in (len(rows), 320, 3):
        ranker.score(state.workload, PLATFORM.name, space.sketch, rows[:n])
    assert asked == [LOWERED, round(320 * SHARE), 3]


def test_a_model_of_another_kind_of_target_is_refused(tmp_path: Path) -> None:
    card = Card(targets={"h200": '{"kind":"cuda","arch":"sm_90"}'})
    lowered = store_model(TenSetMLP, TenSetMLPConfig(width=8), ("h200",))
    for k, model in enumerate((lowered, physics_model(("h200",), "cuda"))):
        folder = save_model(tmp_path / str(k), model, card)
        with pytest.raises(TuneError, match=r"is for cuda \(h200\) and this run for llvm"):
            ranker_named(str(folder), Platform(name="lake-2c"), features=lambda *asked: None)


def test_a_model_of_lowered_programs_needs_somebody_who_lowers(shelf: Path) -> None:
    lowered = store_model(TenSetMLP, TenSetMLPConfig(width=8), ("lake-2c",))
    folder = save_model(shelf / "verifier", lowered, Card())
    with pytest.raises(TuneError, match="takes a farm's build workers, but there are none here"):
        ranker_named(str(folder), Platform(name="lake-2c"))
    own = Platform(name="lake-2c")
    source = read_lowered(lambda workload, sketch, rows: made_up_rows("w", "s", rows.tolist()))
    ranker, line = ranker_named(str(folder), own, [shelf], source)
    assert isinstance(ranker, Staged) and isinstance(ranker.draft, AutoRanker)
    assert "a tenset-mlp on lowered features" in line
    assert "it judges short lists of the model lake-2c, a physics on physics-cpu" in line
    (shelf / "lake-2c").rename(shelf / "zzz")  # auto takes the first by name where both fit
    _, line = ranker_named("auto", own, [shelf], source)
    assert line.startswith("starting from the model verifier, a tenset-mlp")
    _, line = ranker_named("auto", own, [shelf])  # passed over where nobody lowers
    assert line.startswith("starting from the model zzz, a physics")
    state = task_state()
    space = state.space.sketches[0]
    rows = space.sample(100, np.random.default_rng(3))
    ranker.update(measured(state, drawn(state, 16)))
    scores = ranker.score(state.workload, "lake-2c", space.sketch, rows)
    assert np.isfinite(scores).all() and len(np.unique(scores)) > 10
