"""One user at a time: who is refused, and that a claim dies with its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tensorese.cli import run
from tensorese.records.claims import Claim, InUse
from tensorese.records.run_entries import RunHead
from tensorese.records.run_folder import RunFolder, RunFolderError

pytestmark = pytest.mark.null

HOLD = (
    "import sys; from pathlib import Path; from tensorese.records.claims import Claim\n"
    "claim = Claim(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
)


def head() -> RunHead:
    tools = {"tvm": "0.27"}
    return RunHead(model="m", network="m", target="{}", platform="p", tasks=[], toolchain=tools)


@contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_process_is_refused_with_pid_and_host(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path / "lock") as process:
        with pytest.raises(InUse) as caught:
            Claim(tmp_path / "lock")
        assert str(caught.value) == f"process {process.pid} on {os.uname().nodename}"
        process.send_signal(signal.SIGKILL)
        process.wait()
        Claim(tmp_path / "lock").close()  # nobody has to clean up


def test_a_thread_may_claim_again_and_another_may_not(tmp_path: Path) -> None:
    outer, inner = Claim(tmp_path / "lock"), Claim(tmp_path / "lock")
    inner.close()
    inner.close()  # twice is once
    refused: list[str] = []

    def claim() -> None:
        try:
            Claim(tmp_path / "lock").close()
        except InUse as error:
            refused.append(str(error))

    for _ in range(2):
        thread = threading.Thread(target=claim)
        thread.start()
        thread.join()
        outer.close()
    assert refused == [f"process {os.getpid()} on {os.uname().nodename}"]


def test_a_run_folder_has_one_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    RunFolder.open(out, head()).close()
    before = (out / "run.json").read_text()
    with held_elsewhere(out / ".lock") as process:
        with pytest.raises(RunFolderError, match=f"in use by process {process.pid} on "):
            RunFolder.open(out, head())
        assert run(["tune", "zoo:resnet18", "--out", str(out)]) == 2
        said = capsys.readouterr().err.strip()
        assert f"in use by process {process.pid}" in said and "\n" not in said
    assert (out / "run.json").read_text() == before
    RunFolder.open(out, head()).close()


def test_a_refused_folder_gets_no_lock(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("mine")
    with pytest.raises(RunFolderError, match="holds other files"):
        RunFolder.open(tmp_path, head())
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]
