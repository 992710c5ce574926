from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from tensorese.measure.timing import TimingConfig, is_known, split_calm, time_adaptively, time_fixed

pytestmark = pytest.mark.null


class Clockwork:
    """A program of known speed: sleeps nothing, answers `secs` with a fixed jitter."""

    def __init__(self, secs: float, jitter: float = 0.0) -> None:
        self.secs = secs
        self.jitter = jitter
        self.calls: list[tuple[int, int]] = []

    def __call__(self, number: int, repeat: int) -> Sequence[float]:
        self.calls.append((number, repeat))
        taken = sum(r for _, r in self.calls[:-1])
        return [self.secs * (1 + self.jitter * (-1) ** (taken + i)) for i in range(repeat)]


def test_a_steady_program_needs_no_more_than_the_fewest_samples() -> None:
    timed = time_adaptively(Clockwork(5e-3), TimingConfig(min_samples=4))
    assert len(timed.secs) == 4
    assert timed.number == 1
    assert not timed.censored


def test_short_programs_are_repeated_within_a_sample() -> None:
    program = Clockwork(1e-5)
    timed = time_adaptively(program, TimingConfig(sample_ms=3.0))
    assert timed.number == 300
    assert all(number == 300 for number, _ in program.calls[1:])


def test_flushed_runs_are_never_repeated_within_a_sample() -> None:
    timed = time_adaptively(Clockwork(1e-5), TimingConfig(cache="flushed"))
    assert timed.number == 1


def test_noise_buys_more_samples_up_to_the_most() -> None:
    falling = iter(1e-4 * 0.9**i for i in range(1000))  # never twice as fast as before

    def sample(number: int, repeat: int) -> list[float]:
        return [next(falling) for _ in range(repeat)]

    timed = time_adaptively(sample, TimingConfig(max_samples=30))
    assert len(timed.secs) == 1 and len(timed.disturbed) == 29


def test_a_clear_loser_gets_two_samples_whatever_its_noise() -> None:
    timed = time_adaptively(Clockwork(2.4e-3, jitter=0.3), TimingConfig(), best=1e-3)
    assert len(timed.secs) + len(timed.disturbed) == 2


def test_a_slowed_sample_does_not_count_but_is_kept() -> None:
    timed = time_adaptively(Clockwork(5e-3, jitter=0.3), TimingConfig())
    assert set(timed.secs) == {5e-3 * 0.7}
    assert set(timed.disturbed) == {5e-3 * 1.3}


def test_a_first_run_that_has_lost_is_not_timed_further_than_needed() -> None:
    program = Clockwork(8e-3)
    timed = time_adaptively(program, TimingConfig(), best=1e-3, cold=9e-3)
    assert program.calls == [(1, 2)]
    assert timed.secs == (8e-3, 8e-3)


def test_a_first_run_that_a_busy_host_slowed_does_not_settle_it() -> None:
    timed = time_adaptively(Clockwork(1e-5), TimingConfig(), best=1e-5, cold=4e-3)
    assert len(timed.secs) >= 5 and timed.number == 300


def test_a_hopeless_first_run_is_the_only_one() -> None:
    program = Clockwork(1.0)
    assert time_adaptively(program, TimingConfig(), best=1e-3, cold=1.0).censored
    assert program.calls == []


def test_hopeless_programs_are_cut_after_one_run() -> None:
    program = Clockwork(0.5)
    timed = time_adaptively(program, TimingConfig(), best=1e-3)
    assert timed.censored
    assert timed.secs == (0.5,)
    assert program.calls == [(1, 1)]


def test_what_costs_nothing_to_time_is_not_censored() -> None:
    assert not time_adaptively(Clockwork(1e-3), TimingConfig(), best=1e-6).censored


def test_the_budget_ends_timing() -> None:
    def slow(number: int, repeat: int) -> Sequence[float]:
        time.sleep(0.02 * repeat)
        return [0.02 + 0.01 * (i % 2) for i in range(repeat)]

    started = time.perf_counter()
    timed = time_adaptively(slow, TimingConfig(budget_ms=50, precision=1e-9))
    assert time.perf_counter() - started < 0.5
    assert 2 <= len(timed.secs) + len(timed.disturbed) <= 6


def test_fixed_timing_is_tvms_rule() -> None:
    program = Clockwork(1e-3)
    timed = time_fixed(program, TimingConfig(number=3, repeat=2))
    assert program.calls == [(3, 2)]
    assert len(timed.secs) == 2


def test_the_lowest_sample_is_known_when_two_more_are_as_low() -> None:
    assert not is_known([1.0, 1.0], 0.01)
    assert not is_known([1.0, 1.02, 1.0, 1.5], 0.01)
    assert is_known([1.0, 9.0, 1.005, 1.5, 1.0], 0.01)


def test_calm_samples_keep_their_order() -> None:
    assert split_calm([1.02, 2.0, 1.0, 1.04], 0.03) == ([1.02, 1.0], [2.0, 1.04])


@pytest.mark.parametrize("wrong", [{"cache": "warm"}, {"min_samples": 9, "max_samples": 3}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must"):
        TimingConfig(**wrong)  # type: ignore[arg-type]
