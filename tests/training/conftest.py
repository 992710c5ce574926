from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import torch

from tensorese.features.programs import ProgramSet
from tensorese.training.physics import PhysicsSet, physics_set
from training_support import cpu_programs


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Networks this small are slowed down by sharing, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> ProgramSet:
    """Twelve made-up matmul tasks for CPUs, on two platforms that want other tiles."""
    return cpu_programs(tmp_path_factory.mktemp("lakes"))


@pytest.fixture(scope="session")
def data(lakes: ProgramSet) -> PhysicsSet:
    return physics_set(lakes)


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
