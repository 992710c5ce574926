"""Two writers, a full disk, clocks that jump: the command line as a whole, in odd surroundings."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kills import FINALIST, ROOT, TRIALS, Ledger, exported_model, sitting, tuning
from outcome import Outcome
from tensorese.records.nouns import Measurement
from tensorese.records.run_folder import RunFolder
from tensorese.records.store import Store

WRITERS, ROWS = 3, 400
_WRITE = """
import sys
from pathlib import Path
from readers import real_rows
from dataclasses import replace
from tensorese.records.store import Store
rows = real_rows(8)
with Store.open(Path(sys.argv[1]), create=True) as store:
    for n in range(int(sys.argv[3])):
        store.append(replace(rows[n % 8], id=f"{sys.argv[2]}-{n}"))
        if n % 50 == 49:
            store.compact()
"""
# A clock that somebody sets: every second it stands somewhere else.
_CLOCK = """
import random, time
_true, _jump = time.time, float("{jump}")
_places = random.Random(7)
_offsets = [_places.uniform(-1, 1) * _jump for _ in range(1000)] if {both} else [0.0, _jump] * 500
time.time = lambda: _true() + _offsets[int(time.monotonic()) % 1000]
"""


def surroundings(seed: int) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory(prefix="chaos-") as place:
        folder = Path(place)
        model = exported_model(folder)
        yield two_writers(folder, model)
        yield full_disk(folder, model)
        yield jumping_clocks(folder, model)


# -- two writers -----------------------------------------------------------------------------


def two_writers(folder: Path, model: Path) -> Outcome:
    """One run folder: the second is refused. One store: any number may write."""
    outcome = Outcome(name="two writers")
    for number, pause in enumerate((0.0, 1.0, 5.0)):
        run = folder / f"two{number}"
        more = ("--no-compile", "--share")
        with tuning(folder, model, run, *more) as first:
            time.sleep(pause)
            with tuning(folder, model, run, *more, errors="second") as second:
                codes = sorted((first.finish(), second.finish()))
        said = (folder / "second").read_text() + (folder / "stderr").read_text()
        ledger = Ledger(run / "store")
        if first.faults or second.faults:
            outcome.count("tracebacks", first.faults or second.faults)
        elif codes != [0, 2] or "one user at a time" not in said:
            outcome.count("repeated", f"codes {codes}, {said.strip()[-160:]!r}")
        elif len([m for m in ledger.rows() if m.origin != FINALIST]) != TRIALS:
            outcome.count("lost", f"{len(ledger.rows())} rows")
        elif ledger.check(outcome, "two wrote"):
            outcome.count()
    for number in range(3):
        _many_on_one_store(outcome, folder / f"store{number}")
    return outcome


def _many_on_one_store(outcome: Outcome, path: Path) -> None:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(ROOT / "src")])}
    command = [sys.executable, "-c", _WRITE, str(path)]
    writers = [
        subprocess.Popen(
            [*command, str(k), str(ROWS)], env=environment, stderr=subprocess.PIPE, text=True
        )
        for k in range(WRITERS)
    ]
    errors = "".join(writer.communicate()[1] for writer in writers)
    rows = _rows(path)
    if errors or any(writer.returncode for writer in writers):
        outcome.count("tracebacks", errors.strip()[-200:])
    elif len(rows) != WRITERS * ROWS:
        outcome.count("lost", f"{len(rows)} of {WRITERS * ROWS} rows", WRITERS * ROWS - len(rows))
    else:
        outcome.count()


def _rows(path: Path) -> list[Measurement]:
    with Store.open(path) as store:
        return list(store.measurements())


# -- a full disk -----------------------------------------------------------------------------


def full_disk(folder: Path, model: Path) -> Outcome:
    """One line and no label while there is no room; with room the same command goes on."""
    outcome = Outcome(name="full disk")
    for what, kilobytes in (("out", 16), ("out", 128), ("out", 384), ("tmp", 16), ("tmp", 256)):
        with _small_disk(folder / f"disk-{what}-{kilobytes}", kilobytes) as disk:
            if disk is None:
                outcome.notes.append("nothing may be mounted here")
                break
            _tune_on(outcome, folder, model, disk, what)
    return outcome


@contextlib.contextmanager
def _small_disk(path: Path, kilobytes: int) -> Iterator[Path | None]:
    """None where nothing may be mounted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "chaos", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False)


def _tune_on(outcome: Outcome, folder: Path, model: Path, disk: Path, what: str) -> None:
    name = f"{disk.name}: "
    run = disk / "run" if what == "out" else folder / f"run-{disk.name}"
    tmp = disk if what == "tmp" else None
    ledger = Ledger(run / "store")
    with tuning(folder, model, run, "--no-compile", tmp=tmp) as one:
        code = one.finish()
    said = one.errors.read_text().strip()
    if one.faults or code not in (0, 2) or (code and said.count("\n")):
        outcome.count("tracebacks", f"{name}code {code}, {one.faults or said[-300:]!r}")
        return
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    if not ledger.check(outcome, "the disk was full"):
        return
    with tuning(folder, model, run, "--no-compile", tmp=tmp) as one:
        code = one.finish()
    trials = len([m for m in ledger.rows() if m.origin != FINALIST and m.status != "infra_error"])
    if code or one.faults:
        said = one.errors.read_text()[-200:]
        outcome.count("tracebacks", f"{name}with room, code {code}, {said}")
    elif trials != TRIALS:
        outcome.count("lost", f"{name}{trials} of {TRIALS} trials")
    elif ledger.check(outcome, "there was room again"):
        outcome.count()


# -- clocks ----------------------------------------------------------------------------------


def jumping_clocks(folder: Path, model: Path) -> Outcome:
    """A run of 18 seconds takes about that, whatever the wall clock shows."""
    outcome, minutes = Outcome(name="clock jumps"), 0.3
    for number, (jump, both) in enumerate(((3600, False), (-86400, False), (1e7, True))):
        place = folder / f"clock{number}"
        place.mkdir()
        (place / "sitecustomize.py").write_text(_CLOCK.format(jump=jump, both=both))
        started = time.monotonic()
        run = place / "run"
        arguments = ("tune", model, "--out", run, "--minutes", minutes, "--no-compile", "--json")
        with sitting(folder, *arguments, before=place) as one:
            code = one.finish()
        took = time.monotonic() - started
        secs = float(RunFolder.read(run).head["seconds"]) if (run / "run.json").exists() else -1.0
        rows = _rows(run / "store") if (run / "store").exists() else []
        note = f"jumps of {jump} s: code {code}, {took:.0f} s, {secs:.0f} said, {len(rows)} rows"
        if one.faults or code:
            outcome.count("tracebacks", f"{note}, {one.faults or one.errors.read_text()[-200:]}")
        elif not 0 < secs < 60 * minutes + 30 or took > 60 * minutes + 60:
            outcome.count("hangs", note)
        elif len(rows) < 10:
            outcome.count("lost", note)
        else:
            outcome.count()
    return outcome
