from __future__ import annotations

import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from run_support import append, batch, dashboard, good_run, measured
from tensorese.cli import run

pytestmark = pytest.mark.null


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as reply:
        text: str = reply.read().decode()
        return text


def test_a_run_is_shown_while_it_grows_until_ctrl_c(tmp_path: Path) -> None:
    folder = good_run(tmp_path / "run")
    with dashboard(str(folder)) as (process, url):
        assert "<b>5</b><span>trials" in fetched(url)
        append(folder, batch(8, 30.0, [20, 21], 1e-4), [measured(8, 20, 1e-4)])
        while "<b>7</b><span>trials" not in fetched(url):  # pytest's own limit ends it
            pass
        process.send_signal(signal.SIGINT)
        said, complaints = process.communicate(timeout=20)
        assert (process.returncode, said.strip(), complaints) == (0, "", "")
    assert not (folder / "report.html").exists()  # nothing is written into a run by looking


def test_the_demo_needs_no_run(tmp_path: Path) -> None:
    with dashboard("--demo") as (process, url):
        assert "resnet18" in fetched(url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "run.json must be readable"),
        ([], "name a run folder, or say --demo"),
        (["nowhere", "--demo"], "one of both"),
        (["--demo", "--port", "70000"], "70000 is not in the range"),
    ],
)
def test_refusals_are_one_line_and_exit_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["dashboard", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("tensorese: ") and err.count("\n") == 1
    assert says in err


def test_a_port_in_use_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["dashboard", "--demo", "--port", str(port)]) == 2
    err = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1 must be free" in err and "--port" in err
    assert err.count("\n") == 1
