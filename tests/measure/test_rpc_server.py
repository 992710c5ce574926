"""Our RPC server outlives its sessions; the real one is tested in test_rpc.py."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tensorese.measure.rpc_server import main, signal_of, survive_crashes

pytestmark = pytest.mark.null


class Socket:
    closed = False

    def fileno(self) -> int:
        return 42

    def close(self) -> None:
        self.closed = True


def session_that_dies(folder: Path, code: int) -> tuple[Socket, list[tuple[int, str]]]:
    def serving(sock: object, address: object, options: object, libraries: object) -> None:
        os.chdir(folder)
        raise RuntimeError(f"Child process 7 exited unsuccessfully with error code {code}")

    told: list[tuple[int, str]] = []
    sock = Socket()
    before = os.getcwd()
    survive_crashes(serving, lambda fd, text: told.append((fd, text)))(sock, None, {}, "")
    assert os.getcwd() == before
    return sock, told


def test_a_crash_is_told_to_the_client(tmp_path: Path) -> None:
    sock, told = session_that_dies(tmp_path, -signal.SIGSEGV)
    assert told == [(42, "RPCError: the server's process died of SIGSEGV")]
    assert sock.closed


@pytest.mark.parametrize("code", [-signal.SIGKILL, 1])
def test_an_end_that_proves_nothing_is_not_told(tmp_path: Path, code: int) -> None:
    sock, told = session_that_dies(tmp_path, code)
    assert told == []
    assert sock.closed


def test_signal_of_reads_what_tvm_says() -> None:
    assert signal_of("exited unsuccessfully with error code -6") is signal.SIGABRT
    assert signal_of("something else") is None


def test_a_tracker_has_a_host_and_a_port() -> None:
    with pytest.raises(SystemExit, match="HOST:PORT"):
        main(["--tracker", "nowhere", "--key", "k"])
