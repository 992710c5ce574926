"""What the sentinel calls calm, and what it remembers of it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tensorese.measure.config import FarmConfig
from tensorese.measure.sentinel import Floor, Sentinel
from tensorese.targets import Target

pytestmark = pytest.mark.null


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tensorese"


def told(sentinel: Sentinel, *secs: float) -> Sentinel:
    sentinel.run_message()
    sentinel.on_reply("run", {"status": "ok", "secs": list(secs)})
    return sentinel


def test_calm_is_near_the_lowest_time_known() -> None:
    sentinel = Sentinel(FarmConfig(), Target(kind="llvm"))
    assert told(sentinel, 1.1, 1.0).is_calm and sentinel.is_fresh
    assert not told(sentinel, 1.5, 1.2).is_calm and sentinel.drift == pytest.approx(1.2)
    assert told(sentinel, 1.05).is_calm


def test_a_farm_that_comes_up_in_a_busy_moment_knows_better() -> None:
    told(Sentinel(FarmConfig(), Target(kind="llvm")), 1.0)
    assert not told(Sentinel(FarmConfig(), Target(kind="llvm")), 1.5).is_calm
    assert told(Sentinel(FarmConfig(), Target(kind="llvm", cores=3)), 1.5).is_calm
    assert told(Sentinel(FarmConfig(), Target(kind="llvm"), ((0,),)), 1.5).is_calm, "other cores"


def test_what_is_old_or_torn_is_forgotten(cache: Path) -> None:
    told(Sentinel(FarmConfig(), Target(kind="llvm")), 1.0)
    (kept,) = cache.iterdir()
    kept.write_text(json.dumps({"secs": 1.0, "time": time.time() - 4000}))
    assert told(Sentinel(FarmConfig(), Target(kind="llvm")), 1.5).is_calm
    kept.write_text("{")
    assert Floor("target ").secs == float("inf")


def test_a_cache_that_cannot_be_written_is_done_without(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write_text("in the way")
    assert told(Sentinel(FarmConfig(), Target(kind="llvm")), 1.0).is_calm
