"""Attempts at one reader in a process of its own, which is watched: it may crash or hang."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from outcome import Outcome

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HANG_SECS, SLOW_SECS = 90.0, 20.0
MOST_BYTES = 1 << 30
_ROOM = 4 << 30


def attempts_at(name: str, count: int, seed: int) -> Outcome:
    """In as many processes as crash or hang, and one more."""
    outcome, at = Outcome(name=name), 0
    while at < count:
        with _worker(name, seed, at, count) as (process, errors):
            at = _watch(process, errors, outcome, at)
    return outcome


@contextlib.contextmanager
def _worker(
    name: str, seed: int, start: int, stop: int
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    reading, writing = os.pipe()
    command = [sys.executable, str(HERE), "worker", name, str(seed), str(start), str(stop)]
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        errors = Path(folder) / "stderr"
        environment = {**os.environ, "TMPDIR": folder, "CHAOS_FD": str(writing)}
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
                pass_fds=[writing],
                text=True,
            )
        os.close(writing)
        process.stdout = os.fdopen(reading)
        try:
            yield process, errors
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _watch(process: subprocess.Popen[str], errors: Path, outcome: Outcome, at: int) -> int:
    """Counts what it says until it ends; returns the number of the next attempt."""
    assert process.stdout is not None
    started = False
    while True:
        ready, _, _ = select.select([process.stdout], [], [], HANG_SECS)
        if not ready:
            outcome.count("hangs", f"#{at}: more than {HANG_SECS:g} s")
            return at + 1
        line = process.stdout.readline()
        if not line:
            break
        said = json.loads(line)
        if said["at"] < 0:
            started = True
            continue
        at = said["at"] + 1
        outcome.count(said["column"], f"#{said['at']} {said['note']}")
    if process.wait() == 0:
        return sys.maxsize
    last = errors.read_text(errors="replace").strip().splitlines()[-1:] or [""]
    if not started:
        raise RuntimeError(f"{outcome.name}: undamaged files are not read: {last[0]}")
    outcome.count("tracebacks", f"#{at}: ended with {process.returncode}, {last[0][:200]}")
    return at + 1


# -- the worker's side -----------------------------------------------------------------------


def work(name: str, seed: int, start: int, stop: int) -> None:
    from readers import READERS, Damaged

    tell = os.fdopen(int(os.environ["CHAOS_FD"]), "w")
    reader = READERS[name]
    with tempfile.TemporaryDirectory(prefix="files-") as place:
        whole = Path(place) / "whole"
        whole.mkdir()
        reader.prepare(whole)
        reader.read(_copy(whole, Path(place) / "copy"), Damaged())  # undamaged, it is read
        _limit()
        print(json.dumps({"at": -1}), file=tell, flush=True)
        for at in range(start, stop):
            folder = _copy(whole, Path(place) / "copy")
            column, note = attempt(name, folder, random.Random(f"{seed} {name} {at}"))
            print(json.dumps({"at": at, "column": column, "note": note}), file=tell, flush=True)


def attempt(name: str, folder: Path, rng: random.Random) -> tuple[str, str]:
    """Damages one file of the folder and reads; the column it counts as, and why."""
    from readers import READERS, Damaged, Wrong, reseal, resealed
    from tensorese.errors import TensoreseError

    reader = READERS[name]
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path = rng.choice(files)
    damage = rng.choice(reader.damages(path.name))
    before = path.read_bytes()
    after = damage(before, rng)
    path.write_bytes(after)
    if damage is resealed:
        reseal(folder)
    what = f"{path.relative_to(folder)} {damage.__name__}"
    started, held = time.process_time(), _most_held(forget=True)
    try:
        cut = len(before) != len(after)
        reader.read(folder, Damaged(file=str(path.relative_to(folder)), cut=cut))
    except TensoreseError as error:
        if "\n" in str(error):
            return "tracebacks", f"{what}: more than one line: {str(error)[:200]!r}"
    except Wrong as error:
        return "lost", f"{what}: {error}"
    except BaseException as error:
        places = traceback.extract_tb(error.__traceback__)[-6:]
        trail = " < ".join(f"{Path(p.filename).name}:{p.lineno}" for p in reversed(places))
        text = str(error).splitlines()[:1] or [""]
        return "tracebacks", f"{what}: {type(error).__name__} {text[0][:160]} at {trail}"
    if (secs := time.process_time() - started) > SLOW_SECS:
        return "hangs", f"{what}: {secs:.0f} s of a processor"
    if (grown := _most_held() - held) > MOST_BYTES:
        return "tracebacks", f"{what}: took {grown >> 20} MiB"
    return "", what


def _copy(whole: Path, copy: Path) -> Path:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    return copy


def _most_held(forget: bool = False) -> int:
    """Bytes this process held at most since it was last asked to forget."""
    if forget:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) << 10


def _limit() -> None:
    """Room for a few gigabytes more than now; a core file helps nobody."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _ROOM, size + _ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
