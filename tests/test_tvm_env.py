from __future__ import annotations

import subprocess
import sys

import pytest

from tensorese import tvm_env


@pytest.mark.null
@pytest.mark.parametrize("bad", ["0.1.15", "0.1.15.post1", "0.1.16", "0.2.0"])
def test_pairs_that_segfault_are_refused_with_the_fix(
    bad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tvm_env, "version_of", lambda package: bad)
    with pytest.raises(tvm_env.TvmPairError, match=rf"got {bad} .*pip install"):
        tvm_env.check_pair()


@pytest.mark.null
@pytest.mark.parametrize("good", ["0.1.14", "0.1.14.post0", "0.1.14.post1", ""])
def test_good_pairs_pass(good: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_env, "version_of", lambda package: good)
    tvm_env.check_pair()


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.tvm
def test_tvm_comes_without_torch_and_torch_can_follow() -> None:
    code = (
        "import sys; from tensorese.tvm_env import import_tvm; import_tvm();"
        "print('torch' in sys.modules); import torch; print(torch.ones(2).sum().item())"
    )
    assert _run(code).split() == ["False", "2.0"]


@pytest.mark.tvm
def test_a_cpu_process_never_parses_cuda_intrinsics() -> None:
    code = (
        "import time; from tensorese.tvm_env import import_tvm; tvm = import_tvm();"
        "import tvm.s_tir.tensor_intrin as intrin;"
        "print(intrin.cuda.__tensorese_stub__, hasattr(intrin.x86, '__tensorese_stub__'))"
    )
    assert _run(code).split() == ["True", "False"]
