"""Who is timed again where not all can be."""

from __future__ import annotations

from typing import Any

import pytest

from measurements_support import matmul_measurement
from tensorese.search.loop.finalists import affordable, best_of

pytestmark = pytest.mark.null

A, B, C = ["a1", "a2"], ["b1", "b2", "b3"], ["c1"]


def chosen(most: int, **at_stake: float) -> dict[str, Any]:
    leading: Any = {"a": A, "b": B, "c": C}
    return dict(affordable(leading, most, at_stake))


def test_all_are_where_time_allows() -> None:
    assert chosen(6, a=1.0, b=2.0, c=9.0) == {"a": A, "b": B, "c": C}


def test_first_come_tasks_with_a_choice_by_what_they_cost_the_network() -> None:
    assert chosen(5, a=1.0, b=2.0, c=9.0) == {"a": A, "b": B}
    assert chosen(4, a=1.0, b=2.0, c=9.0) == {"b": B}
    assert chosen(4, a=3.0, b=2.0, c=9.0) == {"a": A}
    assert chosen(0, a=3.0, b=2.0, c=9.0) == {}


def test_the_lowest_median_wins_not_one_lucky_turn() -> None:
    lucky, steady = (matmul_measurement(decisions=(n, 8, 16)) for n in (4, 8))

    def turns(n: int, *secs: float) -> list[Any]:
        return [matmul_measurement(decisions=(n, 8, 16), secs=(s,)) for s in secs]

    again = {
        lucky.program.id: turns(4, 1e-3, 5e-3, 6e-3),
        steady.program.id: turns(8, 2e-3, 3e-3, 4e-3),
    }
    winner = best_of([lucky, steady], again)
    assert winner is not None
    assert winner.measurement.program.id == steady.program.id and winner.latency == 3e-3
    (other,) = winner.others
    assert other.measurement.program.id == lucky.program.id and other.latency == 5e-3
