"""A planner process: builds the spaces of tasks and draws rows of them, beside the parent.

Started as `python -m tensorese.collect.planner_process TASKS TARGET SEED CORES`; requests and
answers are JSON, a line each. A task's space is built once and stays with the planner that built
it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tensorese import interrupts
from tensorese.collect.stream import Pick, Stream
from tensorese.collect.tasklist import ListedTask, read_tasks
from tensorese.records.rows import sketch_row
from tensorese.space.space import task_space
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

_PR_SET_PDEATHSIG = 1


class Planner:
    def __init__(self, tasks: list[ListedTask], target: Target, seed: int) -> None:
        self.tasks = tasks
        self.target = target
        self.seed = seed
        self.streams: dict[int, Stream] = {}
        self.sent: set[str] = set()
        """Ids of sketches the parent has."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Programs as `[sketch id, decisions]`; sketches are sent along the first time."""
        index = int(request["task"])
        stream = self._stream(index, request.get("known", ()))
        if request["op"] == "random":
            picks = stream.random(int(request["n"]))
        elif request["op"] == "mutation":
            picks = stream.mutations(request["rows"], int(request["n"]))
        else:
            picks = stream.named(request["rows"])
        return {**self._rows(stream, picks), "exhausted": stream.exhausted}

    def _stream(self, index: int, known: list[str]) -> Stream:
        if index not in self.streams:
            workload = self.tasks[index].workload
            module = import_tvm().ir.load_json(workload.module)
            space = task_space(module, self.target)
            self.streams[index] = Stream(space, workload, self.seed)
        stream = self.streams[index]
        stream.seen.update(known)
        return stream

    def _rows(self, stream: Stream, picks: list[Pick]) -> dict[str, Any]:
        sketches, programs = [], []
        for index, row in picks:
            sketch = stream.space.sketches[index].sketch
            if sketch.id not in self.sent:
                self.sent.add(sketch.id)
                sketches.append(sketch_row(sketch))
            programs.append([sketch.id, list(row)])
        return {"sketches": sketches, "programs": programs}


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(argv: list[str]) -> None:
    interrupts.ignored()  # Ctrl-C and its like are the collecting process's to handle
    _die_with_parent()
    os.sched_setaffinity(0, json.loads(argv[3]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever TVM prints must not end up among the answers
    planner = Planner(read_tasks(Path(argv[0])), Target.from_json(argv[1]), int(argv[2]))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = planner.answer(request)
        except Exception as error:  # this task's fault; the others go on
            text = f"{type(error).__name__}: {error}".strip().splitlines()
            answer = {"error": text[-1][:300] if text else "unknown"}
        print(json.dumps({"tag": request["tag"], **answer}), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
