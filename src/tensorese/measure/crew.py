"""The farm's processes seen from the measuring side: the foreman and the workers it forks."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from tensorese.errors import MeasureError
from tensorese.measure.faults import MachineFault, full_disk
from tensorese.measure.wire import Message, receive_control, send, send_control
from tensorese.scratch import Scratch

_SCRATCH_PREFIX = "tensorese-farm-"
_START_SECS = 120.0
# LLVM allocates and frees a lot per candidate: keeping the heap instead of returning it to the
# kernel each time makes builds 5 % faster.
_MALLOC = (
    "glibc.malloc.trim_threshold=1073741824:glibc.malloc.top_pad=67108864"
    ":glibc.malloc.mmap_threshold=1073741824"
)

# Threads of numpy's BLAS spin on after a reference was computed, on the cores of the program that
# is timed next: it then takes 4 ms, a time slice, instead of 15 microseconds.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(eq=False)
class Worker:
    """One forked process. `job` is what it works on; a paused one is stopped with SIGSTOP."""

    pid: int
    role: str
    lane: int
    connection: Connection
    job: Any = None
    limit: float = 0.0
    deadline: float = float("inf")
    overran: float = 0.0
    retired: bool = False
    paused_at: float = 0.0
    base_rss: int = 0
    started: float = field(default_factory=time.monotonic)

    def give(self, job: Any, message: Message, limit: float) -> None:
        self.job = job
        self.allow(limit)
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            send(self.connection, message)  # a dead worker's exit notice settles the job

    def allow(self, limit: float) -> None:
        self.limit = limit
        self.deadline = time.monotonic() + limit

    def hurry(self, limit: float) -> None:
        """Shortens what it was allowed; the time it stood still does not count."""
        if limit < self.limit:
            self.deadline -= self.limit - limit
            self.limit = limit

    def cut(self) -> None:
        """Its candidate took too long."""
        self.overran = self.limit
        self.retire()

    def retire(self) -> None:
        self.retired = True
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        if not self.paused_at:
            self.paused_at = time.monotonic()
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.paused_at:
            self.deadline += time.monotonic() - self.paused_at  # its clock stood still too
            self.paused_at = 0.0
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class Crew:
    """Starts the foreman, asks it for workers, hands out its notices."""

    def __init__(self, kind: str) -> None:
        try:
            self._folder = Scratch(_SCRATCH_PREFIX)
        except OSError as error:
            raise MachineFault(
                f"a farm needs a temporary folder, but none can be made ({error.strerror or error})"
                "; set TMPDIR to one with room"
            ) from None
        self.scratch = self._folder.path
        self.toolchain: dict[str, str] = {}
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tensorese.measure.foreman"]
        try:
            self.foreman = subprocess.Popen(
                [*command, str(theirs.fileno()), kind, str(self.scratch)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "GLIBC_TUNABLES": _MALLOC, **_ONE_THREAD},
                start_new_session=True,  # a terminal's Ctrl-C reaches us, not the workers
            )
        finally:
            theirs.close()

    def wait_ready(self) -> None:
        self.control.settimeout(_START_SECS)
        try:
            message, _ = receive_control(self.control)
        except (EOFError, TimeoutError, ConnectionError):
            code = self.foreman.poll()
            raise MeasureError(
                "the farm's foreman must come up, but it "
                + (f"exited with code {code}" if code is not None else f"hung {_START_SECS:.0f} s")
                + f"; {full_disk(self.scratch) or 'run `tensorese doctor`'}"
            ) from None
        self.control.settimeout(None)
        self.toolchain = dict(message["toolchain"])

    def ask_for(self, message: Message) -> None:
        send_control(self.control, message)

    def notice(self) -> tuple[Message, list[int]]:
        """Blocks for the next `spawned` or `exited`; EOFError when the foreman is gone."""
        return receive_control(self.control)

    def last_words(self, pid: int) -> str:
        """The end of what a worker printed before it died, on one line."""
        log = self.scratch / f"{pid}.log"
        try:
            text = log.read_text(errors="replace")
            log.unlink()
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines()]
        lines = [line for line in lines if line and not line.startswith(("File ", "!!!"))]
        return " | ".join(lines[-3:])[-300:]

    def close(self) -> None:
        """The foreman kills its workers when the control socket closes."""
        self.control.close()
        try:
            self.foreman.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.foreman.kill()
            self.foreman.wait()
        self._folder.close()


_early: dict[str, Crew] = {}


def start_early(kind: str) -> None:
    """Starts a foreman for the next farm of this kind of target.

    It imports TVM for more than a second: a process that must import TVM itself before it knows
    its target lets both happen at once. One that is never used ends with this process.
    """
    if kind not in _early:
        _early[kind] = Crew(kind)
        if len(_early) == 1:
            atexit.register(_close_early)


def take_crew(kind: str) -> Crew:
    """The foreman that was started early, or a new one."""
    return _early.pop(kind, None) or Crew(kind)


def _close_early() -> None:
    while _early:
        _early.popitem()[1].close()
