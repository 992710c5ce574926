"""What blocks read and write, from real modules of the task list."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorese.collect.tasklist import read_tasks
from tensorese.language.accesses import FAR, Block, blocks_of, box, coefficient, iterators, span

pytestmark = pytest.mark.null

TASKS = Path(__file__).parents[2] / "data" / "tasks.parquet"


@pytest.fixture(scope="module")
def modules() -> dict[str, str]:
    return {task.workload.id: task.workload.module for task in read_tasks(TASKS)}


def _block(module: str, reads: int) -> Block:
    """The one block that reduces over several operands."""
    found = [b for b in blocks_of(module) if any(b.reduces) and len(b.reads) == reads]
    assert len(found) == 1
    return found[0]


def test_a_convolution(modules: dict[str, str]) -> None:
    block = _block(modules["d2ee34f2c8d13cff"], 2)  # 3x3, 56x56, 64 to 64, padded by one
    assert sorted(block.extents) == sorted((1, 56, 56, 64, 64, 3, 3))
    assert sum(block.reduces) == 3
    padded, weight = block.reads
    assert padded.shape == (1, 58, 58, 64) and weight.shape == (3, 3, 64, 64)
    assert weight.free and not padded.free
    assert block.writes[0].shape == (1, 56, 56, 64)
    # A tile of 4 x 7 outputs, all of the window, 8 channels in, 16 out.
    lengths = np.array([[1, 4, 7, 16, 3, 3, 8]], dtype=float)
    assert box(padded, lengths)[0].tolist() == [1, 6, 9, 8]
    assert box(weight, lengths)[0].tolist() == [3, 3, 8, 16]
    assert box(block.writes[0], lengths)[0].tolist() == [1, 4, 7, 16]
    assert coefficient(weight.indices[-1], 3) == 1 and coefficient(padded.indices[-1], 3) == 0


def test_a_stride_counts(modules: dict[str, str]) -> None:
    block = _block(modules["7b23ed0273568dc5"], 2)  # 7x7 with stride 2
    lengths = np.array([[1, 4, 1, 1, 7, 7, 3]], dtype=float)
    assert box(block.reads[0], lengths)[0].tolist() == [1, 13, 7, 3]


def test_groups_divide(modules: dict[str, str]) -> None:
    block = _block(modules["a937c2ff46167ee7"], 2)  # 512 channels in 32 groups of 16
    for channels, read in ((16, 16), (512, 512)):
        lengths = np.array([[1, 1, 1, channels, 1, 1, 16]], dtype=float)
        assert box(block.reads[0], lengths)[0, -1] == read


def test_every_listed_module_is_read(modules: dict[str, str]) -> None:
    for name, module in modules.items():
        blocks = blocks_of(module)
        assert blocks, name
        assert all(len(b.extents) == len(b.reduces) for b in blocks)


def test_anything_else_has_no_blocks() -> None:
    assert blocks_of("") == () and blocks_of("{}") == () and blocks_of("[1") == ()
    assert blocks_of('{"nodes": [{"type": "tir.Block", "attrs": {}}]}') == ()


def test_spans_of_expressions() -> None:
    lengths = np.array([[4.0, 8.0], [1.0, 1.0]])
    i, j = ("i", 0), ("i", 1)
    assert span(("+", ("*", i, ("c", 2)), j), lengths).tolist() == [13, 0]
    assert span(("/", j, ("c", 4)), lengths).tolist() == [1, 0]
    assert span(("%", j, ("c", 4)), lengths).tolist() == [3, 0]
    assert span(("*", i, j), lengths).tolist() == [FAR, FAR]
    assert span(("m", i, j), lengths).tolist() == [7, 0]
    assert coefficient(("-", ("*", ("c", 3), i), j), 0) == 3
    assert iterators(("+", ("/", i, ("c", 2)), j)) == {0, 1}
