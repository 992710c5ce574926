"""The measuring verbs as a stranger would use them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tensorese.measure.demo import conv2d_demo
from tensorese.records.nouns import Measurement, Status
from tensorese.records.store import Store

pytestmark = pytest.mark.tvm


def tensorese(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tensorese", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    out = tmp_path_factory.mktemp("demo") / "store"
    return out, conv2d_demo(out, trials=4, seed=0, on_result=lambda tally: None)


def test_the_demo_beats_the_naive_program_and_verifies_it(
    demo: tuple[Path, dict[str, object]],
) -> None:
    _, result = demo
    assert float(str(result["speed_up"])) > 1.0
    assert result["verified"] is True


def test_a_second_demo_measures_nothing_again(demo: tuple[Path, dict[str, object]]) -> None:
    out, first = demo
    again = conv2d_demo(out, trials=4, seed=0, on_result=lambda tally: None)
    assert again["statuses"] == "all known"
    assert again["best_ms"] == first["best_ms"]


def test_stored_programs_are_measured_again_elsewhere_and_only_once(
    demo: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    source, _ = demo
    out = tmp_path / "again"
    first = tensorese("measure", source, "--out", out, "--limit", "2", "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["measured"] == 2
    second = tensorese("measure", source, "--out", out, "--limit", "2", "--json")
    assert json.loads(second.stdout) | {"drift": 0} == {
        **json.loads(first.stdout),
        "measured": 0,
        "known": 2,
        "by_status": {},
        "drift": 0,
    }
    with Store.open(out) as store:
        assert len(list(store.measurements(status=Status.OK))) == 2


def test_a_run_in_which_everything_fails_is_not_green(
    demo: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    source, _ = demo
    out = tmp_path / "failed"
    done = tensorese(
        "measure", source, "--out", out, "--limit", "3", "--build-timeout", "0.01", "--json"
    )
    assert done.returncode == 2
    assert "all failed: 3 build_timeout: the build took longer" in done.stderr
    complaints = [line for line in done.stderr.splitlines() if line.startswith("tensorese: ")]
    assert len(complaints) == 1  # a slow machine shows its progress beside it
    with Store.open(out) as store:  # and still nothing is lost
        assert len(list(store.measurements())) == 3


def test_ansor_records_cannot_be_replayed_and_it_says_so(
    tmp_path: Path, make_measurement: type[Measurement]
) -> None:
    with Store.open(tmp_path / "s", create=True) as store:
        store.append(make_measurement())
    done = tensorese("measure", tmp_path / "s", "--out", tmp_path / "o")
    assert done.returncode == 2
    assert "must be replayable" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["measure", "nowhere", "--out", "o"], "nowhere does not exist"),
        (["measure", ".", "--out", "o", "--target", "hots"], "did you mean 'host'"),
        (["measure", ".", "--out", "o", "--verify", "some"], "best, all, none"),
        (["measure", ".", "--out", "o", "--rpc-tracker", "here:ninety"], "port must be a number"),
        (["measure", ".", "--out", "o", "--rpc-key", "k"], "needs TVM_TRACKER_PORT"),
        (["demo", "--minutes", "0"], "--minutes must be positive"),
        (["demo", "--minuets", "3"], "No such option"),
        (["mesure"], "did you mean 'measure'"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(args: list[str], said: str) -> None:
    done = tensorese(*args)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
