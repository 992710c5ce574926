"""Fixtures every room may use: the shared public data, and measurements made by hand."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:
    # Read when torch is imported: workers side by side have a core each, not all of them.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest

from lowered_support import with_made_up
from measurements_support import MeasurementMaker, matmul_measurement
from synthetic_support import synthetic_measurements
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.records.store import Store

# Machines that run other things meanwhile must not turn a slow example into a failure.
hypothesis.settings.register_profile("tensorese", deadline=None)
hypothesis.settings.load_profile("tensorese")


def pytest_configure(config: pytest.Config) -> None:
    """A temporary folder of this process's own, for the verbs it starts too: tests that run side
    by side, or beside a user's run, do not wait for the cores that others claim."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="tensorese-tests-", dir=os.environ["PYTEST_DEBUG_TEMPROOT"])
    os.environ["TENSORESE_STORE"] = "off"  # what this machine's user tuned is not for tests
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public measurements; absent, the test is skipped (in CI: it fails)."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("TENSORESE_SHARED_DATA", beside))
    if not (folder / "ansor").is_dir():
        reason = f"public measurements not found in {folder} (set TENSORESE_SHARED_DATA)"
        if os.environ.get("TENSORESE_REQUIRE_SHARED") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture
def make_measurement() -> MeasurementMaker:
    """A small valid matmul measurement; name what should be different."""
    return matmul_measurement


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ProgramSet:
    """Six made-up matmul tasks on two platforms."""
    folder: Path = tmp_path_factory.mktemp("toy")
    with Store.open(folder, create=True) as store:
        store.ingest(synthetic_measurements(platforms=("fast", "slow"), per_task=40))
        return with_made_up(read_programs([store]))
