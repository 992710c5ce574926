"""What a model chooses among when nothing is measured, and whose vote decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from writer_support import micro_writer

from search_support import drawn, measured, one_row_space, seconds, task_state
from tensorese.arrays import Floats32, Ints
from tensorese.models.base import Model
from tensorese.records.nouns import Platform
from tensorese.records.store import Store
from tensorese.search.contracts import TaskState
from tensorese.search.proposers.pool import Scored
from tensorese.search.proposers.shortlist import Judges, Shortlist, ShortlistConfig, nearest_head
from tensorese.search.proposers.tlm import TLMProposer
from tensorese.search.rankers.online import OnlineRanker

pytestmark = pytest.mark.null

Vote = Callable[[int, Ints], Any]


def truth(sketch: int, rows: Ints) -> Any:
    return -np.log2([seconds(sketch, row) for row in rows.tolist()])


class Members:
    """A model of made-up members; it reads the rows themselves."""

    platforms = ("toy",)

    def __init__(self, state: TaskState, *votes: Vote) -> None:
        self.places = {s.sketch.id: k for k, s in enumerate(state.space.sketches)}
        self.votes = votes

    def read(self, _workload: Any, sketch: Any, rows: Any) -> tuple[int, Ints]:
        return self.places[sketch.id], np.asarray(rows)

    def by_member(self, inputs: tuple[int, Ints], _platform: str) -> Floats32:
        return np.array([vote(*inputs) for vote in self.votes], dtype=np.float32).T


class Knowing(OnlineRanker):
    """Scores by the truth."""

    def __init__(self, state: TaskState) -> None:
        super().__init__()
        self.places = {s.sketch.id: k for k, s in enumerate(state.space.sketches)}

    def score(self, _workload: Any, _platform: str, sketch: Any, decisions: Any) -> Any:
        return truth(self.places[sketch.id], np.asarray(decisions)).astype(np.float32)


def judges(state: TaskState, *votes: Vote, **more: Any) -> Judges:
    model = cast(Model, Members(state, *votes)) if votes else None
    return Judges(ranker=Knowing(state), model=model, head="toy", **more)


SMALL = ShortlistConfig(population=256, evolved=16)


def test_candidates_are_legal_distinct_and_in_the_order_of_the_vote() -> None:
    state = task_state()
    found = Shortlist(judges(state, truth), config=SMALL).of(state)
    places = [(p.sketch, p.row) for p in found]
    assert len(set(places)) == len(places) == 16
    assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)
    assert found[0].score == 0.0 and {p.origin for p in found} == {"evolution:online"}
    times = [seconds(*place) for place in places]
    assert times[0] == min(times)
    for p in found:
        assert state.space.sketches[p.sketch].legal(np.array([p.row])).all()


def test_the_same_seed_chooses_the_same() -> None:
    state = task_state()
    chosen = [Shortlist(judges(state, truth), seed=3, config=SMALL).of(state) for _ in range(2)]
    assert chosen[0] == chosen[1]


def test_a_program_is_worth_what_its_most_doubtful_judge_says() -> None:
    state = task_state()
    every = Shortlist(judges(state, truth), config=SMALL).of(state)
    favourite = every[0]

    def doubtful(sketch: int, rows: Ints) -> Any:
        """As the truth has it, but for one program, which it takes to be hopeless."""
        same = (rows == np.array(favourite.row)).all(1) & (sketch == favourite.sketch)
        return np.where(same, -30.0, truth(sketch, rows))

    found = Shortlist(judges(state, truth, doubtful), config=SMALL).of(state)
    assert (found[0].sketch, found[0].row) == (every[1].sketch, every[1].row)
    worst = next(p for p in found if p.row == favourite.row and p.sketch == favourite.sketch)
    assert worst.score == -6.0, "a single judge says no more than that"


def test_without_a_model_the_rankers_score_decides() -> None:
    state = task_state()
    assert Shortlist(judges(state), config=SMALL).of(state)[0].score == 0.0


def test_records_of_the_task_are_among_the_candidates(tmp_path: Path) -> None:
    state = task_state()
    with Store.open(tmp_path / "store", create=True) as store:
        rows = sorted(measured(state, drawn(state, 40)), key=lambda m: m.latency)
        store.append_many(rows)
        found = Shortlist(judges(state, truth, records=[store]), config=SMALL).of(state)
    best = rows[0].program
    assert any(p.origin == "store" and p.row == best.decisions for p in found)


def test_a_task_unlike_all_records_takes_the_nearest_program_first(tmp_path: Path) -> None:
    other = task_state()
    with Store.open(tmp_path / "store", create=True) as store:
        store.append_many(measured(other, drawn(other, 20)))
        stranger = task_state(extents=(128, 96, 32))
        stranger.workload = replace(stranger.workload, operator="never_seen")
        found = Shortlist(judges(stranger, truth, records=[store]), config=SMALL).of(stranger)
    lent = [p for p in found if p.origin == "store:nearest"]
    assert lent and found[: len(lent)] == lent
    for p in lent:
        assert stranger.space.sketches[p.sketch].legal(np.array([p.row])).all()


def test_a_writer_proposes_and_votes() -> None:
    state = task_state()
    rows = np.array([p.row for p in drawn(state, 8) if p.sketch == 0], dtype=np.int64)

    class Likes:
        """Likes its first program and nothing else."""

        platforms = ("toy",)

        def read(self, _workload: Any, _sketch: Any, decisions: Any) -> Ints:
            return np.asarray(decisions)

        def opinions(self, decisions: Ints, _platform: str) -> Floats32:
            return (decisions == rows[0]).all(1).astype(np.float32)[:, None]

    scored = Scored(sketch=0, rows=rows, scores=-np.arange(8.0))
    writer = SimpleNamespace(origin="tlm:x", model=Likes(), written=lambda *_: [scored])

    def indifferent(_sketch: int, decisions: Ints) -> Any:
        return np.zeros(len(decisions))

    found = Shortlist(judges(state, indifferent, writer=writer), config=SMALL).of(state)
    assert (found[0].sketch, found[0].row) == (0, tuple(rows[0].tolist()))
    assert sum(p.origin == "tlm:x" for p in found) == 8


@pytest.mark.parametrize("known", [("toy",), ("elsewhere-2c",)])
def test_a_model_that_writes_takes_part_on_platforms_it_does_not_know(
    known: tuple[str, ...],
) -> None:
    state = task_state()
    writer = TLMProposer(model=micro_writer(known))
    found = Shortlist(judges(state, truth, writer=writer), config=SMALL).of(state)
    written = [p for p in found if p.origin == writer.origin]
    assert written and len(found) > len(written)
    assert all(-6.0 <= p.score <= 0.0 for p in found)


def test_the_only_program_of_a_space_is_the_choice() -> None:
    state = task_state(one_row_space())
    judging = judges(state, lambda _, rows: np.zeros(len(rows)))
    (only,) = Shortlist(judging, config=SMALL).of(state)
    assert only.row == ()


def test_a_model_of_several_platforms_speaks_for_the_nearest() -> None:
    def target(cores: int) -> str:
        return f'{{"kind":"llvm","mcpu":"znver4","num-cores":{cores}}}'

    model = SimpleNamespace(
        platforms=("znver4-2c", "znver4-16c"),
        targets={"znver4-2c": target(2), "znver4-16c": target(16)},
    )
    where = Platform(name="znver4-12c", target=target(12))
    assert nearest_head(cast(Model, model), where) == "znver4-16c"
    assert nearest_head(cast(Model, model), Platform(name="znver4-2c", target="")) == "znver4-2c"
