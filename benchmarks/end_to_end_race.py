"""Times built networks against torch and onnxruntime: all systems loaded, one running at a time.

Every network keeps its own two cores. All its systems are processes of their own on them; while
one network is timed, everything else waits.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from common import add_rows, provenance, read_rows
from end_to_end_networks import INPUTS, KERNELS, UNPACKED, Place
from tensorese.deploy.apply import Applied
from tensorese.deploy.arena import Arena
from tensorese.deploy.build import sha256
from tensorese.deploy.explain import explain, kernel_rows
from tensorese.deploy.folder import read_run
from tensorese.deploy.systems import RIVALS
from tensorese.deploy.verdict import compare, tolerance
from tensorese.measure.peak import peak_gflops
from tensorese.targets import Target
from tensorese.tvm_env import toolchain_of

KEY = ("system", "network", "seed", "minutes", "time", "machine", "tvm", "library")
ROUNDS, SECS = 4, 0.2


class Race:
    """One network: its libraries with and without packed weights, and its rivals."""

    def __init__(self, place: Place, cores: Sequence[int]) -> None:
        self.place = place
        self.cores = set(cores)
        self.run = read_run(place.run)
        self.library = sha256(place.run / "library.so")[:16]
        self.certificate = json.loads((place.run / "certificate.json").read_text())

    def open(self, scratch: Path) -> Arena:
        """To be called in a thread of its own: what it starts stays on its cores."""
        os.sched_setaffinity(0, self.cores)
        with np.load(self.place.run / INPUTS, allow_pickle=False) as stored:
            inputs = [stored[f"in{i}"] for i in range(len(stored.files))]
        scratch.mkdir()
        self.arena = Arena(scratch, [inputs], Target.from_json(self.run.target).threads)
        signature = self.certificate["signature"]
        for name, path in self._libraries().items():
            spec = {"kind": "library", "library": str(path), "signature": signature}
            self.arena.add(name, spec)
        self.arena.add_rivals({n: {"kind": n, "model": self.run.model} for n in RIVALS})
        self._drop_those_that_differ()
        return self.arena

    def _libraries(self) -> dict[str, Path]:
        """`unpacked`: the same programs; the others: of a run without prepacking, timed hot, or
        without Winograd's algorithm."""
        libraries = {
            "tuned": self.place.run / "library.so",
            "unpacked": self.place.run / UNPACKED,
            "tuned-unpacked": self.place.unpacked.run / "library.so",
            "tuned-hot": self.place.hot.run / "library.so",
            "tuned-direct": self.place.direct.run / "library.so",
        }
        return {name: path for name, path in libraries.items() if path.exists()}

    def _drop_those_that_differ(self) -> None:
        depth = {key: self.certificate["verification"][key] for key in ("kernels", "reduction")}
        want = self.arena.outputs("tuned")
        allowed = [tolerance(str(one.dtype), **depth) for one in want]
        for name in [one for one in self.arena.contenders if one != "tuned"]:
            verdict = compare(self.arena.outputs(name), want, allowed)
            if not verdict.passed:
                self.arena.drop(name, f"not compared: {verdict.note}")

    def rows(self, turn: int) -> list[dict[str, Any]]:
        """One row a system; the tuned one says where its time goes."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores)
        peak = peak_gflops(seconds=0.1)
        os.sched_setaffinity(0, before)
        latency = self.arena.time(ROUNDS, SECS)
        profile = self.arena.inside("tuned", 10)["kernels"]
        kernels = kernel_rows(profile, self._applied(), self.run)
        rows = [{**self._key(name, turn), **timed} for name, timed in latency.items()]
        ours = next(row for row in rows if row["system"] == "tuned")
        ours |= {
            "peak_gflops": peak,
            "flops": self._flops(),
            "explanation": explain(float(ours["latency"]), kernels, self.run),
            "kernels": [self._described(row) for row in kernels],
            "absent": dict(self.arena.absent),
            "trials": self._trials(),
            "torch_threads": self.arena.threads,
        }
        return rows

    def _key(self, system: str, turn: int) -> dict[str, Any]:
        about = provenance()
        return {
            "system": system,
            "network": self.place.network,
            "seed": self.place.seed,
            "minutes": self.place.minutes,
            "time": turn,
            "machine": f"{about['machine']['cpu']}, {os.cpu_count()} cores, {len(self.cores)} used",
            "tvm": toolchain_of("llvm")["tvm"],
            "library": self.library,
            "date": about["date"],
            "commit": about["commit"],
        }

    def _applied(self) -> Applied:
        names = json.loads((self.place.run / KERNELS).read_text())
        return Applied(module=None, tuned=names["tuned"], untuned=names["untuned"], workloads={})

    def _flops(self) -> float:
        """Of the network as it is written: by Winograd's algorithm fewer are done."""
        stored = json.loads((self.place.run / KERNELS).read_text()).get("flops")
        done = sum(float(t["flops"]) * int(t["weight"]) for t in self.run.tasks)
        return float(stored or done)

    def _described(self, row: dict[str, Any]) -> dict[str, Any]:
        tasks = {str(task["workload"]): task for task in self.run.tasks}
        task = tasks.get(str(row["workload"]), {})
        flops = float(task.get("flops", 0.0)) * int(row["calls"])
        shapes = list(task.get("shapes", ()))
        return {**row, "operator": task.get("operator", ""), "flops": flops, "shapes": shapes}

    def _trials(self) -> int:
        lines = (self.place.run / "batches.jsonl").read_text().splitlines()
        return sum(len(json.loads(line).get("proposed", ())) for line in lines)


def race(
    places: Sequence[Place], rows: Path, *, times: int, lanes: Sequence[Sequence[int]], until: float
) -> None:
    """Networks in turn, so that the times of one lie apart; ends early at `until` (time.time).

    `lanes` are the cores of each network; without any, all take the same.
    """
    races = []
    for at, place in enumerate(places):
        if place.is_built:
            races.append(Race(place, lanes[at] if lanes else sorted(os.sched_getaffinity(0))))
        else:
            print(f"{place.network}: not tuned and built yet, left out", flush=True)
    have = {tuple(row[name] for name in KEY) for row in read_rows(rows)}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        with ThreadPoolExecutor(max(1, len(races) if lanes else 1)) as pool:
            opened = [pool.submit(one.open, Path(name) / one.place.network) for one in races]
        ready = []
        for one, future in zip(races, opened, strict=True):
            try:
                stack.enter_context(future.result())
                ready.append(one)
            except Exception as error:
                print(f"{one.place.network}: {error}", flush=True)
        for turn in range(times):
            for one in ready:
                key = tuple(one._key("tuned", turn)[part] for part in KEY)
                if key not in have and time.time() < until:
                    timed = one.rows(turn)
                    add_rows(rows, timed)
                    shown = {row["system"]: f"{row['latency'] * 1e3:.3f}" for row in timed}
                    print(f"{one.place.network} {turn}: {shown}", flush=True)
