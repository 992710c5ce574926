"""A CPU's features against numbers worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_plan import FACTORED, SLOTS, TILED

from tensorese.features.cpu import N_FEATURES, NAMES, CpuPhysics
from tensorese.features.cpu_traffic import clashes, pages
from tensorese.features.matrix import Context, Encoder, MatrixSpec
from tensorese.features.physics import feature_names, features_hash
from tensorese.features.reading import Reading
from tensorese.language.accesses import Block, Operand
from tensorese.language.plan import read_plan

pytestmark = pytest.mark.null

ROWS, COLUMNS, TERMS = ("i", 0), ("i", 1), ("i", 2)
X = Operand(buffer=1, shape=(64, 32), indices=(ROWS, TERMS), element=4, free=False)
W = Operand(buffer=2, shape=(32, 128), indices=(TERMS, COLUMNS), element=4, free=True)
Y = Operand(buffer=3, shape=(64, 128), indices=(ROWS, COLUMNS), element=4, free=False)
PAD = Block("pad", (64, 32), (False, False), (X,), (X,))
MATMUL = Block("matmul", (64, 128, 32), (False, False, True), (X, W), (Y,))
# 64 = 4 x 2 x 2 x 4, 128 = 2 x 1 x 2 x 32, 32 = 4 x 8; unrolled to 64, pad at the third loop.
ROW = [4, 2, 2, 4, 2, 1, 2, 32, 4, 8, 64, 2]
BODY = json.dumps([TILED, []])


def _named(values: list[float], blocks: tuple[Block, ...] = (PAD, MATMUL)) -> dict[str, float]:
    plan = read_plan("metaschedule", BODY, SLOTS)
    row = CpuPhysics(plan=plan, blocks=blocks).features(np.array([values], dtype=float))[0]
    assert row.shape == (N_FEATURES,) and np.isfinite(row).all()
    return dict(zip(NAMES, row.tolist(), strict=True))


def test_bands_lanes_and_registers() -> None:
    got = _named([*map(float, ROW)])
    assert [2 ** got[band] for band in ("s0", "s1", "r0", "s2", "r1", "s3")] == [8, 2, 4, 4, 8, 128]
    assert 2 ** got["lanes"] == 32 and got["lanes_filled"] == 4 and got["scalar"] == 0
    assert 2 ** got["accumulators"] == 4 * 2  # four rows of two vectors
    # Of x four elements for all lanes, of w two vectors: eight products of six loads.
    assert 2 ** got["loads"] == pytest.approx(6)
    assert got["per_load"] == pytest.approx(np.log2(8 / 6))
    # A vector is one step: four rows times eight terms are 32 steps, within 64.
    assert got["unroll_s3"] == 4 and got["unroll_r1"] == 1 and got["unroll_s2"] == -1
    assert 2 ** got["unrolled"] == 32


def test_memory_by_level() -> None:
    got = _named([*map(float, ROW)])
    # Inside R1: 8 terms of 4 rows (a line each, half used), of 32 columns, laid out as wanted.
    assert got["first_2"] == pytest.approx(np.log2(4 * 64) - 2)
    assert got["second_2"] == pytest.approx(np.log2(8 * 32 * 4) - 2)
    assert got["out_2"] == pytest.approx(np.log2(4 * 32 * 4) - 2)
    assert got["set_2"] == pytest.approx(np.log2(4 * 64 + 1024 + 512) - 10)
    assert got["first_waste"] == 1 and got["second_waste"] == 0
    assert (got["out_strided"], got["first_strided"], got["second_strided"]) == (2, 0, 2)
    assert got["l2_level"] == 6  # everything fits into a mebibyte


def test_tiles_by_axis_and_vectors_in_pieces() -> None:
    got = _named([*map(float, ROW)])
    assert [2 ** got[f"axis0_s{k}"] for k in range(4)] == [2, 1, 2, 32]  # the last axis first
    assert [2 ** got[f"axis1_s{k}"] for k in range(4)] == [4, 2, 2, 4]
    assert (2 ** got["reduced0_r0"], 2 ** got["reduced0_r1"]) == (4, 8)
    assert got["axis2_s0"] == got["reduced1_r0"] == 0
    assert 2 ** got["pieces"] == 2 and got["pieces_filled"] == 4
    odd = _named([*map(float, [*ROW[:7], 28, *ROW[8:]])])
    assert 2 ** odd["pieces"] == pytest.approx(3)  # 16, 8 and 4 lanes
    assert odd["pieces_filled"] == pytest.approx(4 * 28 / 48)


def test_traffic_loop_by_loop() -> None:
    got = _named([*map(float, ROW)])
    total = 64 * 128 * 32

    def fetched(name: str) -> float:
        return float(2 ** (got[name] - 4)) * total

    # All but the outermost loop, 16 rows of everything, are 26 KiB. That loop moves the rows of
    # x and y, four times over, and leaves w where it is.
    assert fetched("l1_out") == pytest.approx(4 * 16 * 128 * 4)
    assert fetched("l1_first") == pytest.approx(4 * 16 * 32 * 4)
    assert fetched("l1_second") == pytest.approx(32 * 128 * 4)
    assert fetched("l1_moved") == pytest.approx(32768 + 8192 + 16384)
    # R1 and S3 fit 2 KiB: x stays while S2 goes through columns, then moves with the rows (2),
    # with R0 (4) and every loop outside it (16), a line of 64 bytes for four rows each time.
    assert fetched("registers_first") == pytest.approx(4 * 64 * 2 * 4 * 16)
    assert fetched("registers_second") == pytest.approx(8 * 32 * 4 * 2 * 2 * 4 * 16)


def test_pages_and_clashing_rows() -> None:
    rows = Operand(buffer=1, shape=(64, 1024), indices=(ROWS, TERMS), element=4, free=False)
    cells = np.array([[16.0, 8.0], [1.0, 1024.0]])
    assert pages(rows, cells).tolist() == [16, 1]
    assert clashes(rows, cells).tolist() == [16, 1]  # a page apart: all in one set
    odd = rows._replace(shape=(64, 1040))
    assert clashes(odd, cells)[0] == 16 * 64 / 4096
    assert clashes(rows._replace(free=True), cells).max() < 1
    assert pages(rows._replace(free=True), cells).tolist() == [1, 1]


def test_chunks_end_where_something_is_computed() -> None:
    got = _named([*map(float, ROW)])
    # 4 x 2 x 2 chunks: the padding is computed in the third loop, which ends the joining.
    assert 2 ** got["chunks_1"] == 16 and 2 ** got["chunks_16"] == 16
    assert got["balance_16"] == 4 and got["busy_16"] == 0
    free = _named([*map(float, [*ROW[:-1], -1])])
    assert free["at_root_0"] == 4 and free["recomputed"] == 0
    alone = _named([*map(float, [1, 8, 2, 4, *ROW[4:-1], 0])])
    assert 2 ** alone["chunks_16"] == 1 and alone["busy_16"] == -4 and alone["balance_16"] == 0.25


def test_located_work() -> None:
    got = _named([*map(float, ROW)])
    # In each of 4 x 2 x 2 trips, 8 rows and all 32 terms; the second loop repeats them.
    assert 2 ** got["located_trips"] == 16
    assert got["recomputed"] == pytest.approx(np.log2(16 * 8 * 32 / (64 * 32)))
    assert got["located_bytes"] == pytest.approx(np.log2(8 * 32 * 4) - 8)
    assert 2 ** got["located_run"] == 32 and 2 ** got["located_rows"] == 8


def test_what_follows_finishes_a_tile_at_a_time() -> None:
    got = _named([*map(float, ROW)])
    # Inside the second tiles, in 4 x 2 x 2 x 1 trips: 8 rows of 64 columns.
    assert 2 ** got["ending_trips"] == 16 and 2 ** got["ending_run"] == 64
    assert got["ending_bytes"] == pytest.approx(np.log2(8 * 64 * 4) - 8)


def test_without_a_module_the_tiles_remain() -> None:
    got = _named([*map(float, ROW)], ())
    assert got["tiled"] == 4 and 2 ** got["accumulators"] == 8
    assert got["loads"] == got["set_2"] == 0


def test_a_factored_reduction() -> None:
    plan = read_plan("metaschedule", json.dumps([FACTORED, []]), ((2, 2),))
    row = CpuPhysics(plan=plan).features(np.array([[4.0, 32.0]]))[0]
    got = dict(zip(NAMES, row.tolist(), strict=True))
    assert (got["factored_0"], got["factor_outer_0"], got["factor_inner_0"]) == (4, 2, 5)
    assert got["factored_1"] == 0
    assert got["tiled"] == 0


def test_rows_do_not_touch_each_other() -> None:
    plan = read_plan("metaschedule", BODY, SLOTS)
    physics = CpuPhysics(plan=plan, blocks=(PAD, MATMUL))
    rows = np.array([ROW, [*ROW[:4], 2, 1, 64, 1, *ROW[8:10], 0, -2]], dtype=float)
    together = physics.features(rows)
    for k in range(2):
        np.testing.assert_array_equal(together[k], physics.features(rows[k : k + 1])[0])
    assert physics.features(rows[:0]).shape == (0, N_FEATURES)


def test_a_template_and_a_reading_agree() -> None:
    context = Context(("float32",), (64, 32), ((64, 32), (32, 128)), (PAD, MATMUL))
    chosen = [[*ROW[:10], 2, 2]]  # the third choice: 64
    template = Encoder(MatrixSpec(machine="cpu")).template("metaschedule", BODY, SLOTS, context)
    values = template.values(chosen)
    reading = Reading("cpu", "metaschedule", BODY, SLOTS, context).features(chosen)
    np.testing.assert_array_equal(values[:, : template.n_physics], reading)
    assert dict(zip(NAMES, reading[0].tolist(), strict=True)) == _named([*map(float, ROW)])


def test_sets_are_told_apart() -> None:
    assert len({features_hash(machine) for machine in ("gpu", "cuda", "cpu")}) == 3
    assert len(set(NAMES)) == len(NAMES) == len(feature_names("cpu"))
    assert MatrixSpec(machine="cpu").n_physics == N_FEATURES
    assert MatrixSpec(physics=False).n_physics == 0
