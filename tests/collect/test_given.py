"""Programs that a store proposes to another platform."""

from __future__ import annotations

from pathlib import Path

import pytest

from measurements_support import MeasurementMaker
from tensorese.collect.session import programs_of
from tensorese.records.nouns import Status
from tensorese.records.store import Store

pytestmark = pytest.mark.null


def test_what_ran_on_most_platforms_comes_first(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    often, once, failed = (8, 8, 16), (4, 16, 16), (2, 32, 16)
    with Store.open(tmp_path / "s", create=True) as store:
        store.append(make_measurement(decisions=failed, status=Status.BUILD_ERROR))
        store.append(make_measurement(decisions=once))
        for name in ("a", "b"):
            store.append(make_measurement(decisions=often, platform=name))
        found = [one.decisions for one in programs_of(store)]
    assert found == [often, once, failed]
