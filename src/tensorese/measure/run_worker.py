"""A runner: loads one built candidate at a time, times it, and verifies it on request.

It is forked from the foreman, pinned to its lane's cores, and is the only process of that lane
that runs compiled code. If a candidate kills it, only that candidate is lost.
"""

from __future__ import annotations

import math
import os
import re
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import tvm

from tensorese import pages
from tensorese.measure.build_worker import short
from tensorese.measure.faults import machine_fault
from tensorese.measure.referee import Referee
from tensorese.measure.rotation import Rotation, copies, turning
from tensorese.measure.timing import Timed, TimingConfig, time_adaptively, time_fixed
from tensorese.measure.wire import Message, receive, send

# What empties the caches before each run: on a CPU every argument but the output is evicted, on
# a GPU more bytes than any L2 holds are copied.
_FLUSH: dict[str, dict[str, Any]] = {
    "llvm": {"f_preproc": "cache_flush_cpu_non_first_arg"},
    "cuda": {"cache_flush_bytes": 256 << 20},
}
_CACHE_BYTES = 1 << 30  # timing inputs kept between candidates
# Runs this long are timed from outside: TVM's evaluator would add a warm-up to every sample.
_SLOW_SECS = 3e-3
_MOST_ARGS = 1 << 16  # copies of an argument are kept under numbers no argument has


def serve(connection: Connection, settings: Message) -> None:
    runner = Runner(kind=settings["kind"], scratch=settings["scratch"])
    while True:
        job = receive(connection)
        send(connection, runner.run(job, notify=lambda message: send(connection, message)))


class Runner:
    def __init__(self, *, kind: str, scratch: str) -> None:
        self.kind = kind
        if kind == "llvm":
            pin_threads()
        self.device = tvm.device(kind if kind != "llvm" else "cpu", 0)
        self.referee = Referee(scratch=scratch, device=self.device)
        self.tensors: dict[tuple[int, tuple[int, ...], str], Any] = {}

    def run(self, job: Message, notify: Callable[[Message], None]) -> Message:
        """`notify` tells the farm that a reference is being computed, which has its own limit."""
        reply: Message = {"job": job["job"], "status": "ok", "error": "", "secs": []}
        try:
            reply |= self.run_loaded(tvm.runtime.load_module(job["artifact"]), job, notify)
        except Exception as error:
            fault = machine_fault(error)
            status = "infra_error" if fault else "run_error"
            reply |= {"status": status, "error": fault or short(error)}
        reply["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return reply

    def run_loaded(self, library: Any, job: Message, notify: Callable[[Message], None]) -> Message:
        """The part of a reply that the program itself decides."""
        timed = self._time(library, job)
        reply: Message = {
            "secs": list(timed.secs),
            "disturbed": list(timed.disturbed),
            "number": timed.number,
        }
        if timed.censored:
            return {**reply, "status": "censored"}
        if self._wants_check(job, timed):
            verdict = self._verify(library, job, notify)
            reply["verification"] = verdict
            if not verdict["passed"]:
                reply |= {"status": "wrong_output", "error": verdict["note"]}
        return reply

    def _time(self, library: Any, job: Message) -> Timed:
        config = TimingConfig(**job["timing"])
        args = self._timing_args(job["args"])
        flush = _FLUSH[self.kind] if config.cache == "flushed" else {}
        fixed = config.number > 0
        plain = not fixed and not flush
        turns = config.cache == "rotated" and plain
        rotation = self._rotation(job["args"], args) if turns else None
        cold = 0.0

        def sample(number: int, repeat: int) -> Sequence[float]:
            if rotation is not None:
                return rotation.sample(library["main"], number, repeat)
            if number == 1 and plain and cold > _SLOW_SECS:
                return [self._one_run(library, args) for _ in range(repeat)]
            evaluator = library.time_evaluator(
                "main",
                self.device,
                number=number,
                repeat=repeat,
                min_repeat_ms=config.min_repeat_ms if fixed else 0,
                **flush,
            )
            return [float(secs) for secs in evaluator(*args).results]

        if fixed:
            return time_fixed(sample, config)
        best = job.get("best") or math.inf
        cold = self._one_run(library, args)
        return time_adaptively(sample, config, best=best, cold=cold)

    def _one_run(self, library: Any, args: list[Any]) -> float:
        started = time.perf_counter()
        library["main"](*args)
        self.device.sync()
        return time.perf_counter() - started

    def _timing_args(self, specs: list[tuple[list[int], str]]) -> list[Any]:
        if sum(math.prod(shape) * 4 for _, shape, _ in self.tensors) > _CACHE_BYTES:
            self.tensors.clear()
        args = []
        for index, (shape, dtype) in enumerate(specs):
            key = (index, tuple(shape), dtype)
            if key not in self.tensors:
                self.tensors[key] = tvm.runtime.tensor(_filling(shape, dtype), self.device)
            args.append(self.tensors[key])
        return args

    def _rotation(self, specs: list[tuple[list[int], str]], args: list[Any]) -> Rotation | None:
        """None where there are no weights worth copying."""
        sizes = [math.prod(shape) * _itemsize(dtype) for shape, dtype in specs]
        places, count = turning(sizes), copies(sizes)
        if count == 1:
            return None
        sets = [args]
        with pages.Fresh():  # as a library has its weights
            for copy in range(1, count):
                made = list(args)
                for at in places:
                    key = (at + copy * _MOST_ARGS, tuple(specs[at][0]), specs[at][1])
                    if key not in self.tensors:
                        self.tensors[key] = args[at].copyto(self.device)
                    made[at] = self.tensors[key]
                sets.append(made)
        return Rotation(sets, self.device.sync)

    def _wants_check(self, job: Message, timed: Timed) -> bool:
        policy = job["verify"]
        if policy == "best":
            return statistics.median(timed.secs) < (job.get("verify_below") or math.inf)
        return bool(policy == "all")

    def _verify(
        self, library: Any, job: Message, notify: Callable[[Message], None]
    ) -> dict[str, Any]:
        if not self.referee.has(job["workload_id"], job["seed"]):
            notify({"job": job["job"], "phase": "reference"})
            self.referee.prepare(job["workload_id"], job["workload"], job["seed"])
            notify({"job": job["job"], "phase": "verify"})
        return self.referee.check(library, job)


def pin_threads() -> None:
    """Starts TVM's pool with one thread per core of this process, each pinned to its own.

    TVM pins its workers but not the calling thread, which then shares a worker's core now and
    then: the same program takes 0.8 ms or 1.6 ms on two cores, run by run.
    """
    cores = sorted(os.sched_getaffinity(0))
    before = set(os.listdir("/proc/self/task"))
    tvm.get_global_func("runtime.config_threadpool")(1, len(cores))
    os.sched_setaffinity(0, cores[:1])
    started = sorted(set(os.listdir("/proc/self/task")) - before, key=int)
    for thread, core in zip(started, cores[1:], strict=False):
        os.sched_setaffinity(int(thread), [core])


def _itemsize(dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits.group()) // 8) if bits else 1


def _filling(shape: list[int], dtype: str) -> Any:
    """Timing data: random, because zeros and denormals run at other speeds than real data."""
    rng = np.random.default_rng(0)
    if dtype.startswith(("float", "bfloat")):
        return rng.uniform(-1.0, 1.0, shape).astype(np.float32).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 4, shape).astype(dtype)
