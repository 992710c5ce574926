"""The learning process as the measuring one sees it: requests out, progress and batches in."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorese.iterate.config import IterateError
from tensorese.iterate.folder import LOG


@dataclass(frozen=True, kw_only=True)
class Order:
    """Write batch `number` of the tasks, so many programs of each, with the model that has learnt
    from the first `learnt` rounds. Without tasks: learn, and write nothing."""

    number: int
    learnt: int
    tasks: Sequence[tuple[str, int]]

    def to_dict(self) -> dict[str, Any]:
        tasks = [list(pair) for pair in self.tasks]
        return {"number": self.number, "learnt": self.learnt, "tasks": tasks}


class Learner(ABC):
    """Answers are in the run's folder; messages say that they are there, or how far it is."""

    @abstractmethod
    def ask(self, order: Order) -> None: ...

    @abstractmethod
    def poll(self, secs: float = 0.0) -> list[dict[str, Any]]:
        """Messages so far, waiting so long for the first: `ready`, `progress`, `note`, `done`.

        Raises when learning cannot go on.
        """

    @abstractmethod
    def pause(self, paused: bool) -> None:
        """Stands still while a program is timed on the same cores."""

    @abstractmethod
    def close(self) -> None: ...


class LearningProcess(Learner):
    """`python -m tensorese.iterate.learn`, which dies with this process."""

    def __init__(self, run: Path, device: str, cores: Sequence[int]) -> None:
        self.run = run
        self._messages: queue.SimpleQueue[str] = queue.SimpleQueue()
        arguments = [str(run), device, json.dumps(list(cores))]
        with (run / LOG).open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tensorese.iterate.learn", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, order: Order) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # its end is noticed by `poll`
            self._process.stdin.write(json.dumps(order.to_dict()) + "\n")
            self._process.stdin.flush()

    def poll(self, secs: float = 0.0) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        while True:
            try:
                wait = secs > 0 and not messages
                line = self._messages.get(timeout=secs) if wait else self._messages.get_nowait()
            except queue.Empty:
                return messages
            if not line:
                code = self._process.wait()
                raise IterateError(
                    f"the learning process must stay alive, but it ended with exit code {code}; "
                    f"{self.run / LOG} says why; what was measured is kept, the same command goes "
                    "on"
                )
            message = json.loads(line)
            if "error" in message:
                raise IterateError(message["error"])
            messages.append(message)

    def pause(self, paused: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGSTOP if paused else signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._messages.put(line)
        self._messages.put("")
