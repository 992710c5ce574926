from __future__ import annotations

import numpy as np
import pytest

from tensorese.space.limits import (
    AskedDimension,
    Dimension,
    Product,
    SharedMemory,
    StagedBuffer,
    Verdicts,
)
from tensorese.space.memo import Asked

pytestmark = pytest.mark.null

ROWS = np.array([[1, 4, 8, 2], [2, 4, 4, 2], [8, 16, 16, 1]], dtype=np.int64)


def test_threads_between_both_bounds() -> None:
    limit = Product(columns=(1, 2), low=32, high=128)
    assert limit.legal(ROWS).tolist() == [True, False, False]


def test_a_strided_window_reaches_over_its_tile() -> None:
    """Stride 2 over 8 outputs with a kernel of 3 reads 17 inputs; never more than there are."""
    window = Dimension(terms=((2, (0,)), (1, (1,))), cap=17)
    rows = np.array([[8, 3], [1, 3], [9, 3]], dtype=np.int64)
    assert window.extent(rows).tolist() == [17, 3, 17]


def test_shared_memory_counts_bytes_and_copies() -> None:
    tile = StagedBuffer(
        dimensions=(Dimension(terms=((1, (1, 2)),), cap=1024),), element_bytes=2, copies=3
    )
    memory = SharedMemory(buffers=(tile, tile), limit=400)
    assert memory.used(ROWS).tolist() == [384, 192, 3072]
    assert memory.legal(ROWS).tolist() == [True, True, False]
    assert memory.is_exact


def test_an_asked_region_counts_but_bounds_nothing() -> None:
    asked = Asked(spans=((1, 2),), ask=lambda row: int(row[1] * row[2]))
    buffer = StagedBuffer(dimensions=(AskedDimension(asked=asked),), element_bytes=4)
    memory = SharedMemory(buffers=(buffer,), limit=100)
    assert memory.used(ROWS).tolist() == [128, 64, 1024]
    assert not memory.is_exact
    assert memory.reachable(ROWS, ROWS).all()


def test_verdicts_are_remembered() -> None:
    asked: list[int] = []

    def ask(row: np.typing.NDArray[np.int64]) -> bool:
        asked.append(int(row[0]))
        return bool(row[0] < 8)

    verdicts = Verdicts(asked=Asked(columns=(0,), ask=ask))
    assert verdicts.legal(np.vstack([ROWS, ROWS])).tolist() == [True, True, False] * 2
    assert sorted(asked) == [1, 2, 8]
    assert verdicts.legal(ROWS[:0]).tolist() == []
