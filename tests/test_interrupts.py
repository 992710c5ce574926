from __future__ import annotations

import os
import signal
import threading

import pytest

from tensorese import interrupts

pytestmark = pytest.mark.null


class _Deaf:
    """Python drops what is raised in here."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass  # the signal's handler runs between two of these


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_lost_ctrl_c_is_found_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts.remembered():
        interrupts.check()
        thing = _Deaf()
        del thing
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.forget()
        interrupts.check()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_it_is_raised_as_ever(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with interrupts.remembered(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    interrupts.check()  # it was heeded
    assert signal.getsignal(number) is before


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts.remembered():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_have_none() -> None:
    found: list[str] = []

    def work() -> None:
        with interrupts.remembered():
            found.append("went on")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["went on"]
