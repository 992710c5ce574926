"""Faults of the machine are no labels: they cost no trial and name their remedy."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from measurements_support import MeasurementMaker
from tensorese.measure.faults import FaultsInARow, MachineFault, full_disk, machine_fault
from tensorese.records.nouns import Status

null = pytest.mark.null
tvm = pytest.mark.tvm


@null
@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/tmp/x.o"), "free some space"),
        (RuntimeError("/usr/bin/ld failed: final link failed: No space left on device"), "TMPDIR"),
        (OSError("x.so: failed to map segment from shared object"), "write and run programs"),
        (PermissionError(errno.EACCES, "Permission denied", "/tmp/x"), "write and run programs"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "ulimit -u"),
        (MachineFault("linking needs ld; install binutils"), "install binutils"),
    ],
)
def test_what_somebody_can_mend_is_named(error: Exception, remedy: str) -> None:
    assert remedy in machine_fault(error)


@null
@pytest.mark.parametrize(
    "text", ["undefined symbol: f", "std::bad_alloc", "Memory verification failed", ""]
)
def test_a_programs_own_fault_is_none_of_the_machine(text: str) -> None:
    assert machine_fault(RuntimeError(text)) == ""


@null
def test_a_folder_with_room_is_not_full(tmp_path: Path) -> None:
    assert full_disk(tmp_path) == ""
    assert "cannot be read" in full_disk(tmp_path / "none")


@null
def test_only_faults_in_a_row_end_a_run(make_measurement: MeasurementMaker) -> None:
    good = make_measurement()
    bad = replace(good, status=Status.INFRA_ERROR, error="disk full", run_secs=())
    faults = FaultsInARow()
    for measurement in [bad] * 7 + [good] + [bad] * 7:
        faults.see(measurement)
    with pytest.raises(MachineFault, match=r"8 in a row .* disk full.*same command again"):
        faults.see(bad)


def measured(tmp_path: Path, setup: str, **env: str) -> str:
    """What one good program ends as in a process of its own."""
    code = (
        "import os, resource, tempfile\n"
        f"{setup}\n"
        "import farm_support as programs\n"
        "from tensorese.errors import MeasureError\n"
        "from tensorese.measure.config import FarmConfig\n"
        "from tensorese.measure.farm import Farm\n"
        "config = FarmConfig(sentinel_secs=0.0, looks=0, build_workers=1)\n"
        "try:\n"
        "    with Farm(programs.host_target(), config) as farm:\n"
        "        (result,) = farm.measure(programs.good()[:1])\n"
        "    print(result.status.value, result.error)\n"
        "except MeasureError as error:\n"
        "    print('refused', error)\n"
    )
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([*sys.path, str(tests / "measure")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@tvm
def test_without_a_linker_nothing_is_labelled(tmp_path: Path) -> None:
    said = measured(tmp_path, "os.environ['PATH'] = '/nonexistent'")
    assert said.startswith("infra_error linking needs ld or gcc") and "install" in said


@tvm
def test_a_hard_limit_of_memory_is_refused_with_its_remedy(tmp_path: Path) -> None:
    limit = 5 << 30
    said = measured(tmp_path, f"resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))")
    assert said.startswith("refused a worker may need") and "ulimit -v" in said


@tvm
def test_a_full_temporary_folder_is_no_build_error(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        fill = f"open({str(folder / 'fill')!r}, 'wb').write(bytes(1_000_000))"
        said = measured(tmp_path, f"{fill}; tempfile.tempdir = {str(folder)!r}", TMPDIR=str(folder))
        assert said.startswith(("infra_error", "refused")) and "TMPDIR" in said, said
    finally:
        subprocess.run(["umount", str(folder)], check=True)
