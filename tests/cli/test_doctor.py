from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from tensorese import tvm_env
from tensorese.cli.doctor import doctor


@pytest.mark.tvm
def test_a_healthy_machine_is_called_healthy_within_thirty_seconds() -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tensorese", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert time.monotonic() - started < 30
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert report["healthy"]
    names = [check["name"] for check in report["checks"]]
    assert names[-1] == "canary"
    assert {"python", "tvm pair", "llvm", "host target", "gpus", "free disk"} <= set(names)
    assert "right" in report["checks"][-1]["value"]


@pytest.mark.null
def test_a_bad_pair_is_named_with_its_fix_and_tvm_is_not_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tvm_env, "version_of", lambda package: "0.1.15.post1")
    result = CliRunner().invoke(doctor, [], standalone_mode=False)
    assert result.return_value == 1
    assert "FAIL tvm pair" in result.output
    assert tvm_env.FFI_REMEDY in result.output
    assert "canary" not in result.output
