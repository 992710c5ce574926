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


def test_it_is_raised_as_ever() -> None:
    with interrupts.remembered(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    interrupts.check()  # it was heeded


def test_other_threads_have_none() -> None:
    found: list[str] = []

    def work() -> None:
        with interrupts.remembered():
            found.append("went on")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["went on"]
