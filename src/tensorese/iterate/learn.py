"""The learning process: fine-tunes the base on the rounds so far and writes the next batch.

Started as `python -m tensorese.iterate.learn RUN DEVICE CORES`; orders come in and messages go
out as JSON, a line each. What it makes depends on the run's folder and its order alone, never on
what it did before: killed and started again it makes the same.
"""

from __future__ import annotations

import copy
import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tensorese.errors import TensoreseError
from tensorese.iterate.config import IterateError
from tensorese.iterate.fine_tune import FineTuning, device_named, fine_tuned, train_base
from tensorese.iterate.folder import Batch, IterationFolder
from tensorese.iterate.known import Known
from tensorese.models.base import load_model
from tensorese.models.tlm import TLM
from tensorese.records.nouns import Platform, Sketch
from tensorese.records.run_entries import PendingRow
from tensorese.search.contracts import TaskState
from tensorese.search.proposers.tlm import TLMProposer
from tensorese.space.replay import SCHEDULE_ERRORS
from tensorese.space.space import TaskSpace, task_space
from tensorese.space.tiles import SpaceError
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

_PR_SET_PDEATHSIG = 1
Say = Callable[[dict[str, Any]], None]


class Learning:
    """The base is loaded, or trained from `--data`, at once: what is wrong with it is told
    before anything is measured."""

    def __init__(self, run: Path, device: str, say: Say) -> None:
        self.folder = IterationFolder.read(run)
        self.device, self.say = device, say
        head = self.folder.head
        self.target = Target.from_json(head["target"])
        self.platform = Platform(name=head["platform"], target=self.target.to_json())
        self.tasks = {task.workload.id: task for task in self.folder.tasks}
        self.tuning = FineTuning.named(head["learning"], int(head["config"]["seed"]))
        self.known = Known(self.folder, self.platform)
        if not (self.folder.model_path(0) / "config.json").exists():
            say({"note": "training a first model from --data"})
            train_base(self.folder, self.platform, self.tuning, device, self._progress(0))
        self.base = self._load(0)
        self._spaces: dict[str, TaskSpace | str] = {}
        self._writer: tuple[int, TLM] = (0, self.base)

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        begun, learnt = time.time(), int(order["learnt"])
        model = self._model(learnt)
        done = {"done": int(order["number"]), "learnt": learnt, "model": model.hash}
        if not order["tasks"]:
            return done
        batch = self._write(int(order["number"]), learnt, model, order["tasks"], begun)
        self.folder.write_batch(batch)
        return {**done, "programs": len(batch), "secs": round(time.time() - begun, 3)}

    # -- learning -------------------------------------------------------------------------

    def _model(self, learnt: int) -> TLM:
        """That has learnt from so many rounds; the base while nothing has run."""
        if self._writer[0] != learnt:
            self._writer = (learnt, self._learn(learnt))
        return self._writer[1]

    def _learn(self, learnt: int) -> TLM:
        if not learnt:
            return self.base
        if (self.folder.model_path(learnt) / "config.json").exists():
            return self._load(learnt)
        programs = self.known.programs(learnt)
        if programs is None:
            self.say({"note": f"no valid measurement in {learnt} rounds: the base model stays"})
            return self.base
        model = copy.deepcopy(self.base)
        return fine_tuned(
            model, programs, self.folder, learnt, self.tuning, self.device, self._progress(learnt)
        )

    def _load(self, learnt: int) -> TLM:
        path = self.folder.model_path(learnt)
        model = load_model(path)
        if not isinstance(model, TLM):
            raise IterateError(
                f"rounds need a model that writes, of kind tlm, but {path} holds a model of kind "
                f"{model.kind}; train one with `tensorese train tlm`"
            )
        model.network.to(self.device)
        return model

    def _progress(self, learnt: int) -> Callable[[dict[str, Any]], None]:
        def tell(entry: dict[str, Any]) -> None:
            kept = {name: entry.get(name) for name in ("steps", "loss", "seconds_left")}
            self.say({"progress": {"learnt": learnt, **kept}})

        return tell

    # -- writing --------------------------------------------------------------------------

    def _write(
        self, number: int, learnt: int, model: TLM, tasks: list[tuple[str, int]], begun: float
    ) -> Batch:
        proposer = TLMProposer(seed=int(self.folder.head["config"]["seed"]), model=model)
        earlier = self.folder.batches(number)
        rows: list[tuple[str, list[PendingRow]]] = []
        sketches: dict[str, Sketch] = {}
        over: dict[str, str] = {}
        for workload, n in tasks:
            space = self._space(workload)
            if isinstance(space, str):
                over[workload] = space
                continue
            state = TaskState(self.tasks[workload].workload, space, self.platform)
            state.batch = number
            state.seen.update(self.known.rows(workload, space, earlier))
            (proposals,) = proposer.propose([state], n)
            if len(proposals) < n:
                over[workload] = "every program of its space was tried"
            spaces = [space.sketches[one.sketch].sketch for one in proposals]
            sketches |= {sketch.id: sketch for sketch in spaces}
            written = [
                PendingRow(sketch=sketch.id, row=one.row, origin=one.origin, score=one.score)
                for sketch, one in zip(spaces, proposals, strict=True)
            ]
            if written:
                rows.append((workload, written))
        return Batch(
            number=number,
            model=model.hash,
            learnt=learnt,
            rows=rows,
            sketches=sketches,
            over=over,
            span=(begun, time.time()),
        )

    def _space(self, workload: str) -> TaskSpace | str:
        """Why there is none, else."""
        if workload not in self._spaces:
            try:
                module = import_tvm(self.target.kind).ir.load_json(
                    self.tasks[workload].workload.module
                )
                space = task_space(module, self.target, seed=0)
                self._spaces[workload] = space if space.sketches else "TVM offers no sketch for it"
            except (SpaceError, *SCHEDULE_ERRORS) as error:
                lines = str(error).strip().splitlines() or [type(error).__name__]
                self._spaces[workload] = f"TVM has no space for it ({lines[-1].strip()[:160]})"
        return self._spaces[workload]


def main(argv: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the measuring process's to handle
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    cores = json.loads(argv[2])
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever TVM prints must not end up among the answers

    def say(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    try:
        learning = Learning(Path(argv[0]), device_named(argv[1]), say)
        say({"ready": learning.base.hash})
        for line in sys.stdin:
            say(learning.obey(json.loads(line)))
    except TensoreseError as error:
        say({"error": str(error)})
    except Exception as error:
        traceback.print_exc()  # into the run's log
        text = " ".join(str(error).split())[:200]
        say({"error": f"learning failed: {type(error).__name__}: {text}; see {argv[0]}/learn.log"})


if __name__ == "__main__":
    main(sys.argv[1:])
