"""Physical features against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from test_tiling import MATMUL

from tensorese.features.gpu import N_FEATURES, NAMES, Physics, warp_lanes
from tensorese.features.matrix import Context, Encoder, MatrixSpec
from tensorese.features.tiling import Axis, Group, Tiling, read_tiling
from tensorese.language.ansor import split_steps

pytestmark = pytest.mark.null


def _named(tiling: Tiling, values: list[float], *shapes: tuple[int, ...]) -> dict[str, float]:
    row = Physics(tiling=tiling, shapes=shapes).features(np.array([values], dtype=float))[0]
    assert row.shape == (N_FEATURES,)
    return dict(zip(NAMES, row.tolist(), strict=True))


def test_matmul_by_hand() -> None:
    body, slots, decisions = split_steps(MATMUL)
    got = _named(read_tiling("ansor", body, slots), list(map(float, decisions)), (64, 16), (16, 32))
    # 64 = 4 x 1 x 4 x 2 x 2 and 32 = 4 x 1 x 8 x 1 x 1; 16 = 2 x 4 x 2.
    assert got["grid"] == 4  # 16 blocks
    assert got["threads"] == 5  # 32 threads
    assert got["lanes"] == 4  # a full warp
    assert got["accumulators"] == 2  # 4 outputs a thread
    # A block stages 16 rows and 8 columns of 8 terms: 128 and 64 elements.
    assert (got["staged_0"], got["staged_1"]) == (7, 6)
    assert got["staged"] == pytest.approx(np.log2(192))
    assert (got["vector_0"], got["vector_1"]) == (2, 1)
    # 32 threads x 4 elements stage the 128 in one go; x 2 elements the 64 too.
    assert (got["loads_0"], got["full_loads_0"]) == (0, 4)
    assert (got["loads_1"], got["full_loads_1"]) == (0, 4)
    assert got["intensity"] == pytest.approx(np.log2(32 * 4 * 8 / 192))
    # Terms are rows' inner dimension: runs of 8 in the first operand, columns of 8 in the second.
    assert (got["run_0"], got["run_1"]) == (3, 3)
    assert got["unroll_body"] == pytest.approx(np.log2(16) - np.log2(4 * 8))
    # Eight threads write eight neighbours, a whole sector; runs of eight fill theirs too.
    assert (got["store_sectors"], got["sectors_0"], got["sectors_1"]) == (0, 0, 0)
    # 192 words per 1024 products, and one output per 16 products.
    assert got["memory"] == pytest.approx(np.log2(192 / 1024 + 1 / 16) + 8)


def test_window_counts_its_overlap() -> None:
    """A strided convolution stages (tile - 1) * stride + window elements along an axis."""
    spatial = tuple(Axis(None, tuple(range(5 * k, 5 * k + 5))) for k in range(4))
    reduction = tuple(Axis(None, tuple(range(20 + 3 * k, 23 + 3 * k))) for k in range(3))
    n, channels, height, width = [1] * 5, [1, 1, 2, 1, 1], [7, 1, 1, 1, 1], [1, 1, 7, 1, 1]
    terms, rows, columns = [4, 1, 1], [1, 3, 1], [1, 3, 1]
    values = [*n, *channels, *height, *width, *terms, *rows, *columns]
    tiling = Tiling(spatial=spatial, reduction=reduction, on_gpu=True)
    got = _named(tiling, values, (1, 4, 14, 14), (2, 4, 3, 3))
    assert got["staged_0"] == pytest.approx(np.log2(3 * (6 * 2 + 3)))
    assert got["staged_1"] == pytest.approx(np.log2(2 * 9))


def test_cpu_levels_become_grid_and_inner() -> None:
    tiling = Tiling(spatial=(Axis(None, (0, 1, 2, 3)),), reduction=(Axis(None, (4, 5)),))
    got = _named(tiling, [4, 2, 8, 16, 32, 2])
    assert (got["grid"], got["threads"], got["inner1"], got["inner2"]) == (3, 0, 3, 4)
    assert (got["reduce0"], got["reduce1"], got["reduce2"]) == (5, 0, 1)
    assert got["minor_lanes"] == 4


def test_groups_of_threads() -> None:
    got = _named(Tiling(groups=(Group(0, None),)), [48], (100, 96))
    assert got["group_0"] == pytest.approx(np.log2(48))
    assert got["group_lanes_0"] == 3  # one and a half warps take the time of two
    assert got["group_count_0"] == pytest.approx(np.log2(200))
    assert got["tiled"] == 0


def test_last_axis_fills_a_warp_first() -> None:
    lanes = warp_lanes(np.array([[4.0, 2.0, 8.0], [64.0, 1.0, 1.0], [2.0, 64.0, 3.0]]))
    np.testing.assert_array_equal(lanes, [[2, 2, 8], [32, 1, 1], [1, 10, 3]])


def test_template_writes_physics_before_the_cells() -> None:
    body, slots, decisions = split_steps(MATMUL)
    context = Context(("float32",), (64, 16, 16, 32), ((64, 16), (16, 32)))
    template = Encoder(MatrixSpec()).template("ansor", body, slots, context)
    without = Encoder(MatrixSpec(physics=False)).template("ansor", body, slots, context)
    values = template.values([decisions])
    expected = Physics(tiling=read_tiling("ansor", body, slots), shapes=context.shapes)
    np.testing.assert_array_equal(
        values[:, :N_FEATURES], expected.features(np.array([decisions], dtype=float))
    )
    np.testing.assert_array_equal(values[:, N_FEATURES:], without.values([decisions]))
    np.testing.assert_array_equal(template.matrix([decisions]), without.matrix([decisions]))


def test_stale_extents_are_not_shown() -> None:
    """Ansor leaves the fused extent of a staged operand as an ancestor had it."""
    body, slots, decisions = split_steps(MATMUL)
    other = tuple({99: 11, 77: 13}.get(x, x) for x in decisions)
    assert other != decisions
    shown = Encoder(MatrixSpec(recorded=True)).template("ansor", body, slots)
    hidden = Encoder(MatrixSpec()).template("ansor", body, slots)
    assert not np.array_equal(shown.matrix([decisions]), shown.matrix([other]))
    np.testing.assert_array_equal(hidden.matrix([decisions]), hidden.matrix([other]))
    np.testing.assert_array_equal(
        hidden.values([decisions])[:, :N_FEATURES], hidden.values([other])[:, :N_FEATURES]
    )
