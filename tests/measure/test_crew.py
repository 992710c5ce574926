"""A foreman that is started before its farm is known."""

from __future__ import annotations

import pytest

import farm_support as programs
from tensorese.measure import crew
from tensorese.measure.farm import Farm

pytestmark = pytest.mark.tvm


def test_the_next_farm_takes_the_foreman_that_was_started_early() -> None:
    crew.start_early("llvm")
    crew.start_early("llvm")
    waiting = crew._early["llvm"]
    with Farm(programs.host_target()) as measurer:
        assert measurer._director.crew is waiting and not crew._early
        assert all(m.latency > 0 for m in measurer.measure(programs.good()))
    assert waiting.foreman.poll() is not None


def test_one_that_nobody_takes_is_ended() -> None:
    crew.start_early("llvm")
    waiting = crew._early["llvm"]
    crew._close_early()
    assert waiting.foreman.poll() is not None and not waiting.scratch.exists()
