from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tensorese import __version__
from tensorese.cli import VERBS, cli, run
from tensorese.errors import StoreError

pytestmark = pytest.mark.null

CALL = "from tensorese.cli import main; main()"


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr; nothing on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tensorese: ") and err.count("\n") == 1
    return err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(verb in listed for verb in VERBS)
    assert run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out
    assert run([]) == 0
    assert run(["data"]) == 0
    assert "verify" in capsys.readouterr().out


def test_help_imports_neither_torch_nor_tvm_nor_pyarrow() -> None:
    code = "import sys; from tensorese.cli import run; run(['--help']); "
    code += "print(sys.modules.keys() & {'torch', 'tvm', 'pyarrow'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_its_listed_line(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([verb, "--help"]) == 0
    assert "Usage: tensorese " + verb in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dota"], "did you mean 'data'?"),
        (["data", "import"], "Missing argument"),
        (["data", "info", "x", "--jsonn"], "No such option"),
        (["--nonsense"], "No such option"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert says in refusal(capsys)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> click.Command:
    """A verb `boom` that raises what its name says."""

    @click.command()
    @click.argument("kind")
    def boom(kind: str) -> None:
        raise StoreError("a rule\nin two lines") if kind == "store" else KeyboardInterrupt

    monkeypatch.setitem(VERBS, "boom", ("tensorese.cli:boom", "Fail."))
    monkeypatch.setattr("tensorese.cli.boom", boom, raising=False)
    return boom


def test_errors_are_one_line_and_debug_shows_the_trace(
    failing: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["boom", "store"]) == 2
    assert refusal(capsys) == "tensorese: a rule in two lines\n"
    assert run(["--debug", "boom", "store"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_is_130(failing: click.Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["boom", "interrupt"]) == 130
    assert refusal(capsys) == "tensorese: interrupted\n"


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    """`tensorese --help | true`, with the reader gone before the first byte."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-c", CALL, "--help"],
        stdout=write_end,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN),
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_group_is_lazy() -> None:
    assert cli.get_command(click.Context(cli), "nothing") is None
