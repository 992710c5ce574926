"""The planner processes as the collecting process sees them: requests out, programs in."""

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

from tensorese.collect.tasklist import ListedTask, write_tasks
from tensorese.errors import MeasureError
from tensorese.records.nouns import Program, Sketch
from tensorese.records.rows import row_sketch
from tensorese.scratch import Scratch
from tensorese.targets import Target

_MOST_DEATHS = 4


@dataclass(frozen=True, kw_only=True)
class Request:
    """`op` is `random`, `mutation` or `named`; `rows` are `(sketch id, decisions)`."""

    task: int
    op: str
    n: int = 0
    rows: Sequence[tuple[str, Sequence[int]]] = ()
    known: Sequence[str] = ()
    """Program ids not to be handed out, sent with a task's first request."""
    origin: str = ""


@dataclass(frozen=True, kw_only=True)
class PlannedPrograms:
    """New programs of a task; they are replayed and postprocessed by the build workers."""

    request: Request
    programs: tuple[Program, ...] = ()
    exhausted: bool = False
    """The task has no random program left."""
    error: str = ""
    """Why nothing can be had from this task."""


class Planners(ABC):
    """Answers requests out of order; a task's requests are answered in order."""

    @abstractmethod
    def ask(self, request: Request) -> None: ...

    @abstractmethod
    def poll(self) -> list[PlannedPrograms]:
        """What has been answered by now, without waiting."""

    @abstractmethod
    def close(self) -> None: ...


class PlannerPool(Planners):
    """Planner processes; every task belongs to one of them, which keeps its space."""

    def __init__(
        self,
        tasks: Sequence[ListedTask],
        target: Target,
        *,
        seed: int,
        processes: int,
        cores: Sequence[int],
    ) -> None:
        self.tasks = list(tasks)
        self._target, self._seed, self._cores = target, seed, list(cores)
        self._sketches: dict[str, Sketch] = {}
        self._waiting: dict[int, Request] = {}
        self._tag = 0
        self._answers: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._closing = False
        self._deaths = 0  # without an answer in between
        self._folder = Scratch("tensorese-collect-")
        self._list = self._folder.path / "tasks.parquet"
        write_tasks(self._list, self.tasks)
        self._owner: dict[int, int] = {}  # tag to process
        self._processes = [self._start(i) for i in range(processes)]

    def ask(self, request: Request) -> None:
        self._tag += 1
        self._waiting[self._tag] = request
        index = request.task % len(self._processes)
        self._owner[self._tag] = index
        message = {
            "tag": self._tag,
            "task": request.task,
            "op": request.op,
            "n": request.n,
            "rows": [[sketch, list(row)] for sketch, row in request.rows],
            "known": list(request.known),
        }
        stdin = self._processes[index].stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # its end is noticed by its reader
            stdin.write(json.dumps(message) + "\n")
            stdin.flush()

    def poll(self) -> list[PlannedPrograms]:
        plans: list[PlannedPrograms] = []
        while True:
            try:
                index, line = self._answers.get_nowait()
            except queue.Empty:
                return plans
            plans.extend([self._plan(json.loads(line))] if line else self._died(index))

    def pause(self, paused: bool) -> None:
        """Stands still while a program is timed on the same cores."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGSTOP if paused else signal.SIGCONT)

    def close(self) -> None:
        self._closing = True
        for process in self._processes:
            process.kill()
            process.wait()
        self._folder.close()

    def _start(self, index: int) -> subprocess.Popen[str]:
        arguments = [
            str(self._list),
            self._target.to_json(),
            str(self._seed),
            json.dumps(self._cores),
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "tensorese.collect.planner_process", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log(index).open("w"),
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(index, process), daemon=True).start()
        return process

    def _log(self, index: int) -> Path:
        return self._folder.path / f"{index}.log"

    def _last_words(self, index: int) -> str:
        lines = self._log(index).read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "silent"

    def _read(self, index: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._answers.put((index, line))
        if not self._closing:
            self._answers.put((index, ""))

    def _plan(self, answer: dict[str, Any]) -> PlannedPrograms:
        self._deaths = 0
        request = self._waiting.pop(answer["tag"])
        self._owner.pop(answer["tag"])
        if "error" in answer:
            return PlannedPrograms(request=request, error=answer["error"])
        for row in answer["sketches"]:
            self._sketches[row["id"]] = row_sketch(row)
        workload = self.tasks[request.task].workload
        programs = tuple(
            Program(workload=workload, sketch=self._sketches[sketch], decisions=tuple(decisions))
            for sketch, decisions in answer["programs"]
        )
        return PlannedPrograms(
            request=request,
            programs=programs,
            exhausted=answer["exhausted"],
        )

    def _died(self, index: int) -> list[PlannedPrograms]:
        """TVM took the process along: its task is dropped, the rest is requested anew."""
        cause = f"exit code {self._processes[index].wait()}: {self._last_words(index)}"
        self._deaths += 1
        if self._deaths > _MOST_DEATHS:
            raise MeasureError(
                f"planner processes must stay alive, but {self._deaths} died in a row ({cause}); "
                "run tensorese doctor"
            )
        tags = sorted(tag for tag, owner in self._owner.items() if owner == index)
        requests = [self._waiting.pop(tag) for tag in tags]
        for tag in tags:
            self._owner.pop(tag)
        self._processes[index] = self._start(index)
        lost = [request for request in requests if request.task == requests[0].task]
        for request in requests:
            if request not in lost:
                self.ask(request)
        text = f"a planner process died over this task ({cause})"
        return [PlannedPrograms(request=request, error=text) for request in lost]
