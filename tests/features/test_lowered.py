from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tensorese.errors import StoreError
from tensorese.features.lowered import (
    CLASSES,
    COARSE,
    COLUMNS,
    VERSION,
    Lowered,
    LoweredCache,
    LowerStatus,
    class_of,
    coarse_row,
    no_rows,
    pack,
)
from tensorese.language.accesses import blocks_of
from tensorese.records.nouns import Workload
from tensorese.records.store import Store
from tensorese.targets import Target

pytestmark = pytest.mark.null

DATA = Path(__file__).resolve().parents[2] / "data"
TARGET = Target.from_json('{"kind":"llvm","mcpu":"znver4","num-cores":2}')
CUDA = Target.from_json(
    '{"kind":"cuda","arch":"sm_90","thread_warp_size":32,"max_threads_per_block":1024}'
)


def _rows(n: int, seed: int = 0) -> Lowered:
    values = np.random.default_rng(seed).random((n, COLUMNS)).astype(np.float32)
    return Lowered(LowerStatus.OK, values)


def _workload(operator: str) -> Workload:
    with Store.open(DATA / "cpu") as store:
        return next(w for w in store.workloads().values() if w.operator == operator)


@pytest.mark.parametrize(
    ("operator", "block", "expected"),
    [
        ("pad_temp_pool_max", "pool_max", "reduction"),
        ("matmul_T_add", "T_add", "elementwise"),
        ("T_take", "T_take", "gather"),
        ("T_softmax_maxelem_T_softmax_exp_T_softmax_expsum_T_softmax_norm", "", "reduction"),
        ("pad_temp_conv3d_ndhwc_T_add_compute", "conv3d_ndhwc", "conv"),
    ],
)
def test_the_class_of_a_block_is_told_by_its_accesses(
    operator: str, block: str, expected: str
) -> None:
    blocks = blocks_of(_workload(operator).module)
    chosen = [one for one in blocks if not block or one.name == block]
    assert expected in {class_of(one) for one in chosen}


def test_products_and_convolutions_by_class() -> None:
    with Store.open(DATA / "cpu") as store:
        workloads = list(store.workloads().values())
    classes: dict[str, set[str]] = {}
    for workload in workloads:
        for block in blocks_of(workload.module):
            classes.setdefault(block.name, set()).add(class_of(block))
    assert classes["matmul"] == {"matmul", "batch_matmul"}
    assert classes["conv2d_nhwc"] == {"conv", "matmul"}  # of a 1x1 kernel nothing slides
    assert "depthwise" in classes["group_conv2d_nhwc"]


def test_the_coarse_row_tells_operators_sizes_and_platforms_apart() -> None:
    matmul, conv = _workload("matmul"), _workload("pad_temp_conv2d_nhwc_T_add_compute")
    one, other, elsewhere = (
        coarse_row(matmul, TARGET),
        coarse_row(conv, TARGET),
        coarse_row(matmul, CUDA),
    )
    assert one.shape == (len(COARSE),)
    assert not np.array_equal(one[: len(CLASSES)], other[: len(CLASSES)])
    assert one[COARSE.index("gpu")] == 0
    assert elsewhere[COARSE.index("gpu")] == 1
    assert one[COARSE.index("num-cores")] == pytest.approx(np.log2(3))


def test_what_was_lowered_is_known_to_the_next_process(tmp_path: Path) -> None:
    cache = LoweredCache(tmp_path, TARGET)
    cache.add("a", _rows(3))
    cache.add("b", no_rows(LowerStatus.INVALID, "a postprocessor refused it"))
    cache.add("c", no_rows(LowerStatus.NO_ROWS))
    cache.add("d", no_rows(LowerStatus.INFRA_ERROR, "killed"))
    cache.flush()
    cache.add("e", _rows(2, seed=1))
    cache.flush()
    again = LoweredCache(tmp_path, TARGET)
    assert len(again) == 4
    assert "d" not in again  # the machinery's fault: tried again
    assert again["b"].error == "a postprocessor refused it"
    assert again.statuses("abce") == [cache[name].status for name in "abce"]
    for name in "abce":
        np.testing.assert_array_equal(again[name].rows, cache[name].rows)


def test_a_cache_is_of_one_target_however_it_is_spelt(tmp_path: Path) -> None:
    cache = LoweredCache(tmp_path, TARGET)
    cache.add("a", _rows(3))
    cache.flush()
    spelt = json.dumps(dict(reversed(TARGET.to_dict().items())))
    assert "a" in LoweredCache(tmp_path, Target.from_json(spelt))
    assert "a" not in LoweredCache(tmp_path, CUDA)
    assert VERSION in cache.folder.name


def test_half_a_part_is_never_read_and_a_broken_one_is_named(tmp_path: Path) -> None:
    cache = LoweredCache(tmp_path, TARGET)
    cache.add("a", _rows(1))
    cache.flush()
    (cache.folder / "half.tmp").write_bytes(b"PAR1")
    assert len(LoweredCache(tmp_path, TARGET)) == 1
    (cache.folder / "broken.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(StoreError, match=r"broken\.parquet is not; remove it"):
        LoweredCache(tmp_path, TARGET)


def test_ragged_rows_belong_to_their_programs_in_any_order() -> None:
    each = [_rows(2, seed=1), no_rows(LowerStatus.NO_ROWS), _rows(3, seed=2)]
    ragged = pack(each, np.arange(3, dtype=np.float32)[:, None])
    assert ragged.owner.tolist() == [0, 0, 2, 2, 2]
    taken = ragged.take(np.array([2, 1, 0]))
    assert taken.counts.tolist() == [3, 0, 2]
    np.testing.assert_array_equal(taken.values, np.concatenate([each[2].rows, each[0].rows]))
    assert taken.coarse[:, 0].tolist() == [2, 1, 0]
    assert len(pack([], np.zeros((0, 1), np.float32)).values) == 0
