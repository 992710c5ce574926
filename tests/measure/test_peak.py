"""The peak that rates are held against."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorese.measure import peak

pytestmark = pytest.mark.null


def test_a_rate_above_the_peak_proves_it_wrong() -> None:
    assert peak.believed(100.0, [20.0, 99.0]) == 100.0
    assert peak.believed(100.0, []) == 100.0
    assert peak.believed(100.0, [20.0, 101.0]) is None
    assert peak.believed(None, [1.0]) is None


def test_the_peak_is_measured_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(peak, "peak_gflops", lambda **_: 123.0)
    assert peak.known_peak() == 123.0
    monkeypatch.setattr(peak, "peak_gflops", lambda **_: 45.0)
    assert peak.known_peak() == 123.0
    kept = tmp_path / "tensorese" / "peak.json"
    assert list(json.loads(kept.read_text()).values()) == [123.0]
    kept.write_text(json.dumps({"AMD EPYC, 2 cores, 2020-01-01": 123.0}))
    assert peak.known_peak() == 45.0
