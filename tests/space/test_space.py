"""Spaces of real tasks, with TVM as the referee. The full audit of every operator is slow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mean_support import mean_module
from tensorese.identity import plain, structure_of, workload_of
from tensorese.language.metaschedule import cut_tail
from tensorese.records.nouns import Program
from tensorese.space.audit import audit, stock_rows
from tensorese.space.counting import count
from tensorese.space.materialise import materialise
from tensorese.space.slots import Tile
from tensorese.space.space import TaskSpace, task_space
from tensorese.space.tiles import SpaceError
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm

LLVM = Target.from_json('{"kind":"llvm","num-cores":2}')
ARM = Target.from_json(
    '{"kind":"llvm","mtriple":"aarch64-linux-gnu","mcpu":"cortex-a76","num-cores":16}'
)
CUDA = Target.from_json(
    '{"arch":"sm_90","kind":"cuda","max_num_threads":1024,"max_shared_memory_per_block":49152,'
    '"max_threads_per_block":1024,"registers_per_block":65536,"thread_warp_size":32}'
)


def _module(name: str) -> Any:
    tvm = import_tvm("llvm")
    from tvm.s_tir.meta_schedule.testing import te_workload

    makers = {
        "matmul": lambda: te_workload.matmul_relu(64, 96, 128),
        "conv2d": lambda: te_workload.conv2d_nhwc(1, 14, 14, 16, 32, 3, 2, 1),
        "depthwise": lambda: te_workload.depthwise_conv2d_nhwc(1, 28, 28, 32, 3, 1, 1),
        "softmax": lambda: te_workload.softmax_mn(64, 48),
        "square_softmax": lambda: te_workload.softmax_mn(256, 256),
        "grouped": lambda: te_workload.conv2d_nhwc(1, 14, 14, 32, 64, 3, 1, 1, 1, 4),
    }
    return tvm.IRModule({"main": tvm.te.create_prim_func(makers[name]())})


def _space(name: str, kind: str) -> TaskSpace:
    return task_space(_module(name), {"llvm": LLVM, "arm": ARM, "cuda": CUDA}[kind])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("conv2d", "llvm"),
        ("softmax", "llvm"),
        ("matmul", "arm"),
        ("matmul", "cuda"),
        ("depthwise", "cuda"),
        ("softmax", "cuda"),
        ("grouped", "cuda"),
    ],
)
def test_we_and_tvm_agree(name: str, kind: str) -> None:
    space = _space(name, kind)
    assert [sketch.reason for sketch in space.sketches] == [""] * len(space.sketches)
    for index in (0, len(space.sketches) - 1):
        found = audit(space, index, legal=16, stock=8)
        assert found.were_legal == found.called_legal == 16
        assert found.we_accepted == found.stock_accepted == 8


def test_what_tvm_repairs_is_not_legal() -> None:
    """Rows just outside the space: TVM accepts them silently, as other rows than asked for."""
    space = _space("conv2d", "llvm")
    sketch = space.sketches[0]
    location = sketch.locations[0].column
    rng = np.random.default_rng(0)
    rows = sketch.draw(64, rng)
    rows[:, location] = rng.integers(-2, 12, size=len(rows))
    wrong = rows[~sketch.inside(rows)][:12]
    assert len(wrong) == 12
    for row in wrong:
        replayed = space.replay(0, row)
        assert replayed.decisions != tuple(row.tolist())


def test_one_program_on_two_platforms_is_one_program() -> None:
    module = _module("conv2d")
    small = task_space(module, LLVM)
    large = task_space(module, Target(kind="llvm", cores=16))
    for other in (large, task_space(module, ARM)):
        assert [s.sketch.id for s in small.sketches] == [s.sketch.id for s in other.sketches]
    row = small.sketches[0].sample(1, np.random.default_rng(0))[0]
    workload = workload_of(module)
    assert small.program(0, row, workload).id == large.program(0, row, workload).id
    assert _parallel_of(small.decode(0, row)) == 32
    assert _parallel_of(large.decode(0, row)) == 256


def _parallel_of(trace: list[Any]) -> int:
    return next(i[1][1] for i in trace[0] if i[2][:1] == ["meta_schedule.parallel"])


@pytest.mark.parametrize(("name", "kind"), [("conv2d", "llvm"), ("softmax", "llvm")])
def test_traces_of_stock_search_encode_and_decode_exactly(name: str, kind: str) -> None:
    space = _space(name, kind)
    tvm = space.referee.tvm
    mutators = list(space.referee.context.space_generator.mutator_probs)
    checked = 0
    for index in range(len(space.sketches)):
        for seed in range(1, 5):
            schedule = tvm.s_tir.Schedule(space.referee.module, seed=seed)
            fresh = tvm.s_tir.schedule.Trace(space.referee.instructions[index], {})
            fresh.apply_to_schedule(schedule, remove_postproc=True)
            variants = [schedule.trace, *(m.apply(schedule.trace) for m in mutators)]
            for trace in (plain(v.as_json()) for v in variants if v is not None):
                sketch, row, constants = space.encode(trace)
                assert sketch == index
                assert space.decode(sketch, row, constants) == cut_tail(trace)[0]
                checked += 1
    assert checked >= 8 * len(space.sketches)


@pytest.mark.parametrize(
    ("name", "kind"), [("matmul", "llvm"), ("softmax", "llvm"), ("softmax", "cuda")]
)
def test_simplified_traces_encode_too(name: str, kind: str) -> None:
    """As stock search simplifies those it starts from: what is gone decides nothing."""
    space = _space(name, kind)
    shortened = 0
    for index, sketch in enumerate(space.sketches):
        for row in sketch.sample(2, np.random.default_rng(index)):
            schedule = space.replay(index, row).schedule
            short = schedule.trace.simplified(remove_postproc=True)
            found, back, _ = space.encode(plain(short.as_json()))
            again = space.replay(found, back)
            assert structure_of(again.schedule.mod) == structure_of(schedule.mod)
            shortened += len(short.insts) < len(space.referee.instructions[index])
    assert shortened


def test_a_foreign_trace_is_refused() -> None:
    space = _space("matmul", "llvm")
    other = _space("conv2d", "llvm")
    row = other.sketches[0].sample(1, np.random.default_rng(0))[0]
    with pytest.raises(SpaceError, match="must be of one of the task's 3 sketches"):
        space.encode(other.decode(0, row))


def test_a_task_that_stock_cannot_schedule_is_refused_in_one_line() -> None:
    """A `where` beside a product, both read by a sum: TVM's CPU rules keep the first and raise."""
    tvm = import_tvm("llvm")
    te = tvm.te
    a, b, m = (te.placeholder((16, 16), name=name) for name in "abm")
    k = te.reduce_axis((0, 16), name="k")
    product = te.compute((16, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    mask = te.compute((16, 16), lambda i, j: tvm.tirx.Select(m[i, j] > 0, -1.0, 0.0), name="w")
    total = te.compute((16, 16), lambda i, j: product[i, j] + mask[i, j], name="t")
    module = tvm.IRModule({"main": te.create_prim_func([a, b, m, total])})
    with pytest.raises(SpaceError, match="its rules fail on this one: The primitive") as caught:
        task_space(module, LLVM)
    assert "\n" not in str(caught.value)


def test_a_large_kernel_beside_the_tiled_one_is_covered() -> None:
    """Its three-way split is reordered too, over loops that no tile decides (GPT-2's GELU)."""
    tvm = import_tvm("llvm")
    te = tvm.te
    a, b = te.placeholder((128, 16), name="a"), te.placeholder((16, 4096), name="b")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((128, 4096), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((128, 4096), lambda i, j: te.tanh(c[i, j]) + c[j % 128, j], name="d")
    space = task_space(tvm.IRModule({"main": te.create_prim_func([a, b, d])}), CUDA)
    assert any(str(i.kind.name) == "Reorder" for i in space.referee.instructions[0][-8:])
    assert [sketch.reason for sketch in space.sketches] == [""] * len(space.sketches)
    found = audit(space, 0, legal=6, stock=2)
    assert found.were_legal == found.called_legal == 6
    assert found.we_accepted == found.stock_accepted


def test_materialised_programs_replay_from_their_trace_alone() -> None:
    space = _space("conv2d", "llvm")
    tvm = space.referee.tvm
    workload = workload_of(space.referee.module)
    rng = np.random.default_rng(1)
    rows = [(k, space.sketches[k].sample(1, rng)[0]) for k in (0, 1, 2)]
    made = materialise(space, rows, workload, threads=2)
    assert [m.program.decisions for m in made] == [tuple(r.tolist()) for _, r in rows]
    for one in made:
        assert one.error == ""
        again = tvm.s_tir.Schedule(space.referee.module)
        trace = _full_trace(one.recorded())
        tvm.s_tir.schedule.Trace.apply_json_to_schedule(trace, again)
        assert structure_of(again.mod) == structure_of(one.schedule.mod)


def _full_trace(program: Program) -> list[Any]:
    from tensorese.language.metaschedule import join_trace

    sketch = program.sketch
    return join_trace(sketch.body, sketch.slots, program.decisions, program.tail)


def test_materialising_names_what_tvm_did_instead() -> None:
    space = _space("conv2d", "llvm")
    row = space.sketches[0].sample(1, np.random.default_rng(0))[0]
    row[space.sketches[0].locations[0].column] = 21
    made = materialise(space, [(0, row)], workload_of(space.referee.module))
    assert made[0].schedule is None
    assert "TVM replays" in made[0].error


def test_softmax_is_counted_as_tvm_enumerates_it() -> None:
    """Every location TVM offers, walked by hand for the sketch without tiles."""
    space = _space("square_softmax", "llvm")
    index = next(  # TVM lists a task's sketches in no particular order
        i
        for i, sketch in enumerate(space.sketches)
        if not any(isinstance(slot, Tile) for slot in sketch.slots)
    )
    sketch, probe = space.sketches[index], space.probes[index]
    prefixes = [np.array([0], dtype=np.int64)]
    for slot in sketch.locations:
        prefixes = [
            np.append(prefix, value) for prefix in prefixes for value in probe.offered(slot, prefix)
        ]
    assert count(sketch) == 4 * len(prefixes)


def test_stock_accepts_no_row_twice_as_something_else() -> None:
    space = _space("matmul", "cuda")
    rows = stock_rows(space, 0, 4, seeds=space.sketches[0].sample(2, np.random.default_rng(0)))
    assert space.sketches[0].legal(rows).all()


def test_a_cuda_space_needs_no_tensor_intrinsics() -> None:
    script = (
        "import sys\n"
        "from tensorese.measure.demo import conv2d_module\n"
        "from tensorese.space.space import task_space\n"
        "from tensorese.targets import Target\n"
        "task_space(conv2d_module(), Target.from_json(sys.argv[1]))\n"
        "stub = sys.modules['tvm.s_tir.tensor_intrin.cuda']\n"
        "assert stub.__tensorese_stub__\n"
    )
    source = str(Path(__file__).resolve().parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", script, CUDA.to_json()],
        env={"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_stock_search_can_start_from_our_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its own samples all fail, or take too long: its rows have our columns then too."""
    monkeypatch.setattr("tensorese.space.audit._FRESH_SECS", 0.0)
    space = _space("softmax", "cuda")
    for index, sketch in enumerate(space.sketches):
        seeds = sketch.sample(2, np.random.default_rng(0))
        rows = stock_rows(space, index, 4, seeds=seeds)
        assert rows.shape == (4, sketch.n_columns)
        assert sketch.legal(rows).all()


def test_a_reduction_across_threads_must_lower_to_be_legal() -> None:
    """TVM's postprocessors pass all 64 rows; its lowering fails where the loop is unrolled."""
    space = task_space(mean_module(), CUDA)
    (sketch,) = (i for i, one in enumerate(space.sketches) if one.reduces_across_threads)
    rows = np.array([[4, 0], [0, 0], [0, 2], [0, 4], [3, 2], [3, 7]], dtype=np.int64)
    assert all(space.replay(sketch, row).passed for row in rows)
    legal = space.sketches[sketch].legal(rows)
    assert legal.tolist() == [True, True, True, False, True, False]
    assert legal.tolist() == [space.is_legal(sketch, row) for row in rows]
