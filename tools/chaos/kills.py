"""`kill -9` of `tune` and `collect` at all phases: what was acknowledged stays, nothing is measured
twice, nothing is left running, and the same command goes on."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outcome import Outcome
from tensorese.records.nouns import Measurement, Status
from tensorese.records.run_folder import RunFolder
from tensorese.records.store import Store

ROOT = Path(__file__).resolve().parents[2]
FINALIST, ROUNDS = "finalist", 3
TRIALS, LEAST_MINUTES = 24, 0.4
HANG_SECS = 300.0
PHASES = ("start", "batch", "finalists", "compiling", "verifying", "timing")
MARK = "TENSORESE_CHAOS"


@dataclass
class Sitting:
    """One process of the command line, in a temporary folder of this part's own."""

    process: subprocess.Popen[str]
    mark: str
    errors: Path
    heard: list[str] = field(default_factory=list)

    def until(self, words: str) -> bool:
        """Whether it says so before it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard.append(line)
            if words in line:
                return True
        return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.finish()

    def finish(self) -> int:
        """Its exit code, once nobody holds its output any more."""
        assert self.process.stdout is not None
        self.heard += self.process.stdout
        self.process.stdout.close()
        return self.process.wait()

    @property
    def faults(self) -> str:
        text = self.errors.read_text(errors="replace") + "".join(self.heard)
        at = text.find("Traceback (most recent call last)")
        return "" if at < 0 else text[at:].strip().splitlines()[-1][:200]


@contextlib.contextmanager
def sitting(
    folder: Path,
    *arguments: object,
    errors: str = "stderr",
    tmp: Path | None = None,
    before: Path | None = None,
) -> Iterator[Sitting]:
    """Ended after a time that no sound one takes; `before` is a folder of Python's own start."""
    mark = uuid.uuid4().hex
    (folder / "tmp").mkdir(exist_ok=True)
    sources = [str(path) for path in (before, ROOT / "src") if path is not None]
    environment = {
        **os.environ,
        **{"TMPDIR": str(tmp or folder / "tmp"), "PYTHONPATH": os.pathsep.join(sources)},
        MARK: mark,
    }
    with (folder / errors).open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tensorese", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            text=True,
        )
    watch = threading.Timer(HANG_SECS, process.kill)
    watch.start()
    try:
        yield Sitting(process, mark, folder / errors)
    finally:
        watch.cancel()
        process.kill()
        process.wait()


def left_over(mark: str, within: float = 10.0) -> list[int]:
    """Processes of a sitting that still run after a while."""
    needle, deadline = f"{MARK}={mark}".encode(), time.monotonic() + within
    while True:
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if needle in environ.read_bytes():
                    found.append(int(environ.parent.name))
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def _state(pid: int) -> str:
    """What it is and what it waits for."""
    with contextlib.suppress(OSError):
        place = Path(f"/proc/{pid}")
        words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        state = (place / "stat").read_text().rpartition(")")[2].split()
        waits = (place / "wchan").read_text()
        return f"{words[-60:].strip()} ({state[0]}, child of {state[1]}, {waits})"
    return "gone since"


@dataclass
class Ledger:
    """What a store has shown so far; checked again after every kill."""

    store: Path
    seen: set[str] = field(default_factory=set)
    repeats: set[str] = field(default_factory=set)

    def check(self, outcome: Outcome, phase: str, acknowledged: int = 0) -> bool:
        """Counts what is lost or repeated since the last time."""
        rows = self.rows()
        ids = {m.id for m in rows}
        trials = [m for m in rows if m.origin != FINALIST and m.status is not Status.INFRA_ERROR]
        gone = len(self.seen - ids) + max(0, acknowledged - len(trials))
        times = Counter(m.program.id for m in trials)
        turns = Counter(m.program.id for m in rows if m.origin == FINALIST)
        often = {i for i, n in times.items() if n > 1} | {i for i, n in turns.items() if n > ROUNDS}
        fresh = often - self.repeats
        self.seen |= ids
        self.repeats |= often
        if gone:
            outcome.count("lost", f"{gone} measurements, killed while {phase}", gone)
        elif fresh:
            outcome.count("repeated", f"{len(fresh)} programs, killed while {phase}", len(fresh))
        return not gone and not fresh

    def rows(self) -> list[Measurement]:
        if not (self.store / "store.json").exists():
            return []
        with Store.open(self.store) as store:
            return list(store.measurements())


def _judge(
    outcome: Outcome, one: Sitting, ledger: Ledger, phase: str, acknowledged: int = 0
) -> None:
    left = left_over(one.mark)
    states = [_state(pid) for pid in left]
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    if one.faults:
        outcome.count("tracebacks", f"{one.faults}, killed while {phase}")
    elif left:
        outcome.count("hangs", f"stayed, killed while {phase}: {'; '.join(states)}")
    elif ledger.check(outcome, phase, acknowledged):
        outcome.count()


# -- tune ------------------------------------------------------------------------------------


def killed_tuning(kills: int, seed: int) -> Outcome:
    """Each run is killed in every phase once, then brought to its end."""
    outcome, rng = Outcome(name="kill -9 of tune"), random.Random(f"{seed} tune")
    with tempfile.TemporaryDirectory(prefix="chaos-") as place:
        folder = Path(place)
        model = exported_model(folder)
        number = 0
        while outcome.attempts < kills:
            run, number = folder / f"run{number}", number + 1
            ledger = Ledger(run / "store")
            for phase in PHASES[: kills - outcome.attempts]:
                _kill_tuning(outcome, folder, model, run, ledger, phase, rng)
            _end_tuning(outcome, folder, model, run, ledger)
    return outcome


def exported_model(folder: Path) -> Path:
    """A convolution and a product, exported in a process of its own."""
    path = folder / "small.pt2"
    code = (
        "import sys; from tensorese.tvm_env import import_tvm; import_tvm()\n"
        "import torch; from torch import nn; torch.manual_seed(0)\n"
        "layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 16)]\n"
        "inputs = (torch.randn(1, 3, 8, 8),)\n"
        "program = torch.export.export(nn.Sequential(*layers).eval(), inputs)\n"
        "torch.export.save(program, sys.argv[1])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment)
    return path


def _kill_tuning(
    outcome: Outcome,
    folder: Path,
    model: Path,
    run: Path,
    ledger: Ledger,
    phase: str,
    rng: random.Random,
) -> None:
    with tuning(folder, model, run) as one:
        if phase == "start":
            time.sleep(rng.random() * 6.0)
        else:
            words = '"event": "batch"' if phase == "batch" else phase
            one.until(words)  # it may be past that phase, and end
            time.sleep(rng.random() * (1.0 if phase in ("batch", "finalists") else 2.0))
        one.kill()
        _judge(outcome, one, ledger, phase, _announced(one.heard))


def tuning(
    folder: Path,
    model: Path,
    run: Path,
    *more: str,
    errors: str = "stderr",
    tmp: Path | None = None,
) -> contextlib.AbstractContextManager[Sitting]:
    wanted = ("tune", model, "--out", run, "--trials", str(TRIALS), "--json", *more)
    return sitting(folder, *wanted, errors=errors, tmp=tmp)


def _announced(lines: list[str]) -> int:
    """Trials that it said were measured."""
    trials = 0
    for line in lines:
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            trials = max(trials, int(json.loads(line).get("trials", 0)))
    return trials


def _end_tuning(outcome: Outcome, folder: Path, model: Path, run: Path, ledger: Ledger) -> None:
    """Not counted as an attempt unless something is wrong."""
    with tuning(folder, model, run) as one:
        code = one.finish()
    state = str(RunFolder.read(run).head.get("state"))
    missing = [n for n in ("library.so", "certificate.json") if not (run / n).exists()]
    if code or state != "finished" or missing:
        outcome.count("lost", f"the run does not end: code {code}, {state}, without {missing}")
        return
    trials = [m for m in ledger.rows() if m.origin != FINALIST]
    if len(trials) != TRIALS:
        outcome.count("lost", f"{len(trials)} of {TRIALS} trials at the end")
    if ledger.check(outcome, "the last sitting") and one.faults:
        outcome.count("tracebacks", one.faults)
    left = [p.name for p in (folder / "tmp").glob("tensorese-*") if p.is_dir()]
    if left:
        outcome.count("hangs", f"temporary folders stayed: {left[:3]}")


# -- collect ---------------------------------------------------------------------------------


def killed_collecting(kills: int, seed: int) -> Outcome:
    outcome, rng = Outcome(name="kill -9 of collect"), random.Random(f"{seed} collect")
    with tempfile.TemporaryDirectory(prefix="chaos-") as place:
        folder = Path(place)
        tasks = _tasks(folder)
        ledger = Ledger(folder / "store")
        arguments = ["collect", "--tasks", tasks, "--out", folder / "store", "--json"]
        arguments += ["--target", '{"kind":"llvm","num-cores":1}', "--minutes", "5"]
        while outcome.attempts < kills:
            with sitting(folder, *arguments) as one:
                phase = rng.choice(("start", "measuring", "measuring"))
                if phase == "start":
                    time.sleep(rng.random() * 5.0)
                else:
                    _until_rows(one, ledger, more=rng.randrange(1, 6))
                one.kill()
                _judge(outcome, one, ledger, phase)
        with sitting(folder, *arguments[:-1], str(LEAST_MINUTES)) as one:
            code = one.finish()
            left = left_over(one.mark)
        if code or one.faults or left:
            outcome.count("tracebacks", one.faults or f"the last sitting ends with {code}, {left}")
        ledger.check(outcome, "the last sitting")
    return outcome


def _tasks(folder: Path) -> Path:
    from tensorese.collect.tasklist import ListedTask, write_tasks
    from tensorese.measure.candidates import workload_of

    listed = [
        ListedTask(workload=workload_of(_product(n)), kind="llvm", operator="dense")
        for n in (32, 48, 64)
    ]
    write_tasks(folder / "tasks.parquet", listed)
    return folder / "tasks.parquet"


def _product(n: int) -> Any:
    from tensorese.tvm_env import import_tvm

    tvm = import_tvm()
    a, b = (tvm.te.placeholder((n, n), name=name) for name in "ab")
    k = tvm.te.reduce_axis((0, n), name="k")
    c = tvm.te.compute((n, n), lambda i, j: tvm.te.sum(a[i, k] * b[k, j], axis=k))
    return tvm.IRModule({"main": tvm.te.create_prim_func([a, b, c])})


def _until_rows(one: Sitting, ledger: Ledger, more: int, within: float = 60.0) -> None:
    """Until the store has so many rows more."""
    wanted, deadline = len(ledger.rows()) + more, time.monotonic() + within
    while time.monotonic() < deadline and one.process.poll() is None:
        if len(ledger.rows()) >= wanted:
            return
        time.sleep(0.05)
