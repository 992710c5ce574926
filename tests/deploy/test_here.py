"""Which libraries are run on this machine, and which are only built."""

from __future__ import annotations

import pytest

from tensorese.deploy import here
from tensorese.deploy.here import why_not_here
from tensorese.targets import Target

pytestmark = pytest.mark.tvm


def test_its_own_programs_and_those_of_older_processors_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Target.parse("host")
    assert why_not_here(host) == ""
    assert why_not_here(Target(kind="llvm", mcpu=host.mcpu, cores=64)) == ""
    pretend(monkeypatch, "znver4")
    assert why_not_here(Target(kind="llvm", mcpu="znver3", cores=8)) == ""
    assert why_not_here(Target(kind="llvm", mcpu="x86-64-v3", cores=8)) == ""


def test_what_needs_more_than_this_processor_has_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "znver3")
    assert "a znver3, lacks avx512" in why_not_here(Target(kind="llvm", mcpu="znver4", cores=2))
    wider = Target.from_dict({"kind": "llvm", "mcpu": "znver3", "mattr": ["+avx512f"]})
    assert "avx512f" in why_not_here(wider)


def test_neither_does_another_architecture_or_an_absent_device() -> None:
    arm = Target.from_dict({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"})
    assert "aarch64-linux-gnu" in why_not_here(arm)
    assert "no rocm device" in why_not_here(Target(kind="rocm"))


def pretend(monkeypatch: pytest.MonkeyPatch, mcpu: str) -> None:
    made = Target(kind="llvm", mcpu=mcpu, cores=2)

    class Pretended(Target):
        @classmethod
        def parse(cls, text: str, *, cores: int | None = None) -> Target:
            return made

    monkeypatch.setattr(here, "Target", Pretended)
