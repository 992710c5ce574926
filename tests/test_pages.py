from __future__ import annotations

import mmap

import numpy as np
import pytest

from tensorese import pages

pytestmark = pytest.mark.null


def test_only_what_is_new_is_added() -> None:
    before = [(10, 20), (40, 50)]
    assert pages.added(before, [(10, 20), (40, 50)]) == []
    assert pages.added(before, [(5, 60)]) == [(5, 10), (20, 40), (50, 60)]
    assert pages.added(before, [(12, 18), (70, 80)]) == [(70, 80)]


def test_own_memory_is_found_and_keeps_what_it_holds() -> None:
    before = pages.anonymous()
    room = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = np.frombuffer(room, np.uint8)
    array[...] = 7
    fresh = pages.added(before, pages.anonymous())
    start = array.ctypes.data
    assert any(low <= start and start + array.nbytes <= high for low, high in fresh)
    done = pages.collapse(start, start + array.nbytes)
    assert done % pages.HUGE == 0 and done <= array.nbytes
    assert array.min() == array.max() == 7


def test_less_than_a_huge_page_is_left_alone() -> None:
    assert pages.collapse(4096, pages.HUGE - 4096) == 0


def test_what_a_block_allocates_is_moved_at_its_end() -> None:
    with pages.Fresh() as fresh:
        array = np.ones(16 << 20, np.uint8)
    assert 0 <= fresh.huge <= 64 << 20
    assert array.min() == array.max() == 1
    with pytest.raises(ValueError, match="ours"), pages.Fresh() as fresh:
        raise ValueError("ours")
    assert fresh.huge == 0
