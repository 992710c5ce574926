from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tensorese.cli import COMPLETE, VERBS, run

pytestmark = pytest.mark.null

FISH_OR_ZSH = {"zsh": "#compdef tensorese", "fish": "complete --no-files --command tensorese"}


def offered(line: str) -> list[str]:
    """What a shell is told when Tab is pressed behind `line`."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    asked = {**os.environ, **words, COMPLETE: "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "tensorese"], env=asked, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_verbs_options_and_files_are_offered() -> None:
    assert offered("tensorese ") == [f"plain,{verb}" for verb in VERBS]
    assert offered("tensorese das") == ["plain,dashboard"]
    assert set(offered("tensorese tune --t")) >= {"plain,--target", "plain,--trials"}
    assert offered("tensorese tune model.o") == ["file,model.o"]
    assert offered("tensorese completion f") == ["plain,fish"]
    assert "plain,import" in offered("tensorese data im")


def test_bash_completes_with_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a real shell: its function is called as Tab would call it."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    assert run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    command = tmp_path / "tensorese"
    command.write_text(f'#!{bash}\nexec "{sys.executable}" -m tensorese "$@"\n')
    command.chmod(0o755)
    script += "COMP_WORDS=(tensorese comp); COMP_CWORD=1; _tensorese_completion tensorese\n"
    script += 'printf "%s\n" "${COMPREPLY[@]}"'
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, env=path)
    assert done.stdout.split() == ["compile", "compare", "completion"], done.stderr


@pytest.mark.parametrize("shell", FISH_OR_ZSH)
def test_other_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert FISH_OR_ZSH[shell] in text and COMPLETE in text


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "csh"]) == 2
    err = capsys.readouterr().err
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in err and err.count("\n") == 1
