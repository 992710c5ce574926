"""Runs systems in processes of their own, in turn, so that a noisy minute hits all of them."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from tensorese.deploy.arrays import Array, store_arrays, stored_arrays
from tensorese.deploy.errors import DeployError
from tensorese.targets import usable_cores

_SLOW = 2.0  # seconds of a first run, after which one sample has to do
_FEWEST_ROUNDS, _MOST_ROUNDS = 2, 20  # where a time limit says how many
REST = 0.3  # seconds for the last system's idle threads to stop spinning: TVM's take 0.1


class Contender:
    """A child process with one system in it."""

    def __init__(self, name: str, scratch: Path, kind: str, *, warm: bool = False) -> None:
        """A `warm` one has TVM, torch and the GPU ready when it is asked to load something."""
        self.name = name
        self.kind = kind
        self._log = (scratch / f"{name}.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tensorese.deploy.worker", *(["warm"] if warm else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=_environment(),
        )

    @property
    def process_id(self) -> int:
        return self._process.pid

    def ask(self, message: Mapping[str, Any], limit: float = 600.0) -> dict[str, Any]:
        """The reply; a system that fails, dies or overruns `limit` raises with its error."""
        timer = threading.Timer(limit, self._process.kill)
        timer.start()
        try:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late = not timer.is_alive()
            timer.cancel()
        if not line:
            raise DeployError(f"{self.name} {self._last_words(late, limit)}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise DeployError(f"{self.name} failed: {reply['error']}")
        return reply

    def _last_words(self, late: bool, limit: float) -> str:
        if late:
            return f"took longer than {limit:g} s and was stopped"
        code = self._process.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        last_line = f": {lines[-1][:300]}" if lines else ""
        return f"died (exit code {code}){last_line}"

    def end(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # closing flushes what a dead process never read
                self._process.stdin.close()

    def close(self) -> None:
        self.end()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def _environment() -> dict[str, str]:
    """The child finds this very package, and no thread count of its parent's."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


class Arena(AbstractContextManager["Arena"]):
    """The systems of one comparison on the same inputs; use as a context manager.

    All are timed on the first of `inputs`. The `early` run in processes that are there already.
    """

    def __init__(
        self,
        scratch: Path,
        inputs: Sequence[list[Array]],
        threads: int,
        early: Sequence[Contender] = (),
    ) -> None:
        self.scratch = scratch
        self.threads = threads
        self.contenders: dict[str, Contender] = {}
        self.absent: dict[str, str] = {}
        """Why an optional system takes no part."""
        self.first: dict[str, float] = {}
        self._early = {one.name: one for one in early}
        self._inputs = [scratch / f"inputs{at}.npz" for at in range(len(inputs))]
        for path, arrays in zip(self._inputs, inputs, strict=True):
            store_arrays(path, "in", arrays)

    def add(self, name: str, spec: Mapping[str, Any], *, optional: bool = False) -> None:
        contender = self._early.pop(name, None)
        contender = contender or Contender(name, self.scratch, str(spec["kind"]))
        base = {"op": "load", "inputs": str(self._inputs[0]), "threads": self.threads}
        try:
            contender.ask({**base, **spec})
        except DeployError as error:
            contender.close()
            if not optional:
                raise
            self.absent[name] = str(error)
            return
        self.contenders[name] = contender

    def add_rivals(self, specs: Mapping[str, Mapping[str, Any]]) -> None:
        """In their order; several load at once, because some compile for a minute."""
        with ThreadPoolExecutor(len(usable_cores())) as pool:
            list(pool.map(lambda one: self.add(one[0], one[1], optional=True), specs.items()))
        order = [*(name for name in self.contenders if name not in specs), *specs]
        self.contenders = {n: self.contenders[n] for n in order if n in self.contenders}

    @property
    def processes(self) -> list[int]:
        return [contender.process_id for contender in self.contenders.values()]

    def swap(self, name: str, spec: Mapping[str, Any]) -> None:
        """Another system by the same name, in the same place."""
        order = list(self.contenders)
        self.contenders.pop(name).close()
        self.first.pop(name, None)
        self.add(name, spec)
        self.contenders = {one: self.contenders[one] for one in order}

    def drop(self, name: str, why: str) -> None:
        self.contenders.pop(name).close()
        self.first.pop(name, None)
        self.absent[name] = why

    def outputs(self, name: str, at: int = 0) -> list[Array]:
        """What the system computes; how long its first run took is kept in `first`."""
        path = self.scratch / f"{name}.npz"
        message = {"op": "outputs", "path": str(path), "inputs": str(self._inputs[at])}
        secs = float(self.contenders[name].ask(message)["secs"])
        self.first.setdefault(name, secs)
        return stored_arrays(path, "out")

    def inside(self, name: str, runs: int) -> dict[str, Any]:
        """Where the time of a library goes."""
        message = {"op": "profile", "runs": runs, "inputs": str(self._inputs[0])}
        return self.contenders[name].ask(message)

    def values(self, name: str, at: int = 0) -> list[tuple[str, Array]]:
        """What each kernel of a library wrote, in order."""
        path = self.scratch / f"{name}-values.npz"
        message = {"op": "values", "path": str(path), "inputs": str(self._inputs[at])}
        kernels = self.contenders[name].ask(message)["written"]
        return list(zip(kernels, stored_arrays(path, "k"), strict=True))

    def time(
        self,
        rounds: int,
        secs: float,
        on_round: Callable[[int], None] = lambda _: None,
        until: float | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Rounds over all systems, the order turned each time.

        A system whose first run took over two seconds is not run again. With `until`, a time of
        `time.monotonic`, there are as many rounds as fit, but two at least.
        """
        slow = {name: first for name, first in self.first.items() if first > _SLOW}
        names = [name for name in self.contenders if name not in slow]
        samples: dict[str, list[list[float]]] = {name: [[first]] for name, first in slow.items()}
        started = time.monotonic()
        for turn in range(rounds if until is None else _MOST_ROUNDS):
            if until is not None and turn >= _FEWEST_ROUNDS:
                each = (time.monotonic() - started) / turn
                if time.monotonic() + each > until:
                    break
            on_round(turn)
            at = turn % max(len(names), 1)
            for name in names[at:] + names[:at]:
                time.sleep(REST)
                reply = self.contenders[name].ask({"op": "time", "secs": secs, "least": 3})
                samples.setdefault(name, []).append(reply["secs"])
        return {name: summary(samples[name]) for name in self.contenders}

    def __exit__(self, *_error: object) -> None:
        everyone = [*self.contenders.values(), *self._early.values()]
        for contender in everyone:
            contender.end()  # all at once: each takes half a second to unload its libraries
        for contender in everyone:
            contender.close()


def summary(rounds: list[list[float]]) -> dict[str, Any]:
    """The median round's median; `spread` is how far the rounds' medians lie apart."""
    medians = [statistics.median(samples) for samples in rounds if samples]
    if not medians:
        return {"latency": math.nan, "rounds": [], "runs": 0, "spread": math.nan}
    middle = statistics.median(medians)
    return {
        "latency": middle,
        "best": min(min(samples) for samples in rounds),
        "rounds": medians,
        "runs": sum(map(len, rounds)),
        "spread": (max(medians) - min(medians)) / middle,
    }
