"""`tensorese compile` and `tensorese bench`: what is refused, and what is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tensorese.cli import run
from tensorese.cli.compile import lines_of

pytestmark = pytest.mark.null


@pytest.mark.parametrize("verb", ["compile", "bench"])
def test_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    assert "RUN" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["compile", "bench"])
def test_no_run_folder_is_one_line(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([verb, str(tmp_path)]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("tensorese: ") and "run.json" in said and "\n" not in said


def test_a_damaged_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text("{")
    assert run(["compile", str(tmp_path)]) == 2
    assert "damaged" in capsys.readouterr().err
    (tmp_path / "run.json").write_text("{}")
    assert run(["compile", str(tmp_path)]) == 2
    assert "'model'" in capsys.readouterr().err


def row(latency: float, runs: int = 9) -> dict[str, Any]:
    return {"latency": latency, "spread": 0.04, "runs": runs}


def test_what_libraries_print_while_they_are_timed_goes_to_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(run: Path, *, on_step: Any, **_: Any) -> dict[str, Any]:
        on_step("timing")
        os.write(2, b"Warning: from C++\n")
        explanation = {"sum_of_tasks": 0, "causes": []}
        return {"latency": {"tuned": row(1e-3)}, "absent": {}, "explanation": explanation}

    monkeypatch.setattr("tensorese.deploy.bench_run", timed)
    assert run(["bench", str(tmp_path)]) == 0
    printed = capfd.readouterr()
    assert printed.err == "timing ...\n" and "1.000 ms" in printed.out
    assert (tmp_path / "log.txt").read_text() == "Warning: from C++\n"


def test_lines_for_people() -> None:
    result = {
        "latency": {"tuned": row(2e-3), "torch": row(3e-3), "untuned": row(1.0, runs=1)},
        "absent": {"onnxruntime": "not installed"},
        "explanation": {"sum_of_tasks": 1e-3, "gap": 1.0, "causes": ["softmax is untuned"]},
        "verification": {
            "against": {"torch": {"passed": True, "max_error": 1e-7, "tolerance": 1e-4}}
        },
    }
    lines = lines_of(result)
    assert lines[0].split() == ["tuned", "2.000", "ms", "+-2%"]
    assert lines[1].split() == ["torch", "3.000", "ms", "+-2%", "1.50x"]
    assert lines[2].split()[-1] == "500.00x" and "one run" in lines[2]
    text = "\n".join(lines)
    assert "not installed" in text and "softmax is untuned" in text and "agree with torch" in text


def test_lines_of_what_the_network_decided() -> None:
    skipped = {"against": {}, "replaced": {}, "skipped": "made up"}
    played: dict[str, Any] = {"tasks": 5, "decided": {"a": {}, "b": {}}}
    line = lines_of({"verification": skipped, "play_off": played})[0]
    assert line.startswith("2 of 5 tasks were decided in the network")
    left_out = {"tasks": 5, "decided": {}, "left_out": "no time was left for it"}
    assert "network" not in lines_of({"verification": skipped, "play_off": left_out})[0]


def test_lines_of_what_was_neither_timed_nor_verified() -> None:
    unmeasured = {"programs": {"a": "evolution", "b": "store"}, "judged_for": "near-2c"}
    certificate = {
        "platform": "here-2c",
        "unmeasured": unmeasured,
        "verification": {"against": {}, "replaced": {}, "skipped": "no cuda device is here"},
    }
    first, second, third = lines_of(certificate)
    assert first.startswith("nothing was timed to choose 2 programs")
    assert first.endswith("speaks for near-2c, the nearest to here-2c")
    assert "was not timed" in second
    assert third == "outputs were not verified: no cuda device is here"
    unmeasured["judged_for"] = "here-2c"
    assert lines_of(certificate)[0].endswith("speaks for its own platform")
