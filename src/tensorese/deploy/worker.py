"""A process that runs one system: loads it, gives its outputs, times it, profiles it on request.

JSON lines in and out; what libraries print goes to the error stream.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from tensorese.deploy import profiling
from tensorese.deploy.arrays import store_arrays, stored_arrays
from tensorese.deploy.systems import System, keep_to
from tensorese.tvm_env import import_tvm


class BenchWorker:
    def __init__(self) -> None:
        self.system: System | None = None

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Never raises for what a system does: the reply holds `error` instead."""
        try:
            if message["op"] == "load":
                return self._load(message)
            assert self.system is not None, "load first"
            if message["op"] == "outputs":
                return self._outputs(self.system, message)
            if message["op"] == "time":
                return {"secs": _times(self.system, float(message["secs"]), int(message["least"]))}
            if message["op"] == "profile":
                arrays = _stored(message["inputs"])
                return profiling.look_inside(self.system, arrays, int(message["runs"]))
            call = self.system.bind(_stored(message["inputs"]))
            return {"written": profiling.keep_values(self.system, call, str(message["path"]))}
        except Exception as error:
            text = " ".join(str(error).split())[:500]
            return {"error": f"{type(error).__name__}: {text}"}

    def _load(self, message: Mapping[str, Any]) -> dict[str, Any]:
        started = time.perf_counter()
        if message["kind"] != "torch-cuda":  # which compiles in many processes
            keep_to(int(message["threads"]))
        import_tvm()  # before torch, which it would otherwise drag through its own import
        self.system = System(message, _stored(message["inputs"]))
        return {"secs": time.perf_counter() - started}

    def _outputs(self, system: System, message: Mapping[str, Any]) -> dict[str, Any]:
        arrays = _stored(message["inputs"])
        started = time.perf_counter()
        outputs = system.outputs(arrays)
        secs = time.perf_counter() - started
        store_arrays(message["path"], "out", outputs)
        return {"secs": secs}


def _stored(path: Any) -> list[Any]:
    return stored_arrays(path, "in")


def _times(system: System, secs: float, least: int) -> list[float]:
    """Seconds of every run, until `secs` have passed and `least` runs are done."""
    clock = time.perf_counter
    samples: list[float] = []
    system.call()  # the pool is awake and the caches hold the weights, as in a busy server
    end = clock() + secs
    while clock() < end or len(samples) < least:
        started = clock()
        system.call()
        samples.append(clock() - started)
    return samples


def serve(requests: TextIO, replies: TextIO) -> None:
    worker = BenchWorker()
    for line in requests:
        replies.write(json.dumps(worker.answer(json.loads(line))) + "\n")
        replies.flush()


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if "warm" in sys.argv[1:]:
        profiling.warm_up()
    serve(sys.stdin, replies)


if __name__ == "__main__":
    main()
