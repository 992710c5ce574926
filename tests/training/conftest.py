from __future__ import annotations

import socket
from pathlib import Path

import pytest

from synthetic_support import synthetic_measurements
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.records.store import Store


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ProgramSet:
    """Six made-up matmul tasks on two platforms."""
    folder: Path = tmp_path_factory.mktemp("toy")
    with Store.open(folder, create=True) as store:
        store.ingest(synthetic_measurements(platforms=("fast", "slow"), per_task=40))
        return read_programs([store])


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
