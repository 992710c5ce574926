"""A real record of TVM 0.27: made by MetaSchedule, imported, exported, applied by stock TVM."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tensorese.identity import plain, workload_of
from tensorese.measure.candidates import from_schedule
from tensorese.records.exporters import write_metaschedule
from tensorese.records.importers import read_records
from tensorese.records.nouns import Measurement, Platform, Status
from tensorese.records.store import Store
from tensorese.space.sampling import random_schedules
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm


def matmul_module() -> Any:
    tvm = import_tvm()
    te = importlib.import_module("tvm.te")
    a, b = (te.placeholder((32, 32), name=name) for name in "AB")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return tvm.IRModule({"main": te.create_prim_func([a, b, c])})


def make_database(folder: Path, module: Any) -> Any:
    """Every sketch of the design space, with made-up times, written by TVM itself."""
    tvm = import_tvm()
    ms = importlib.import_module("tvm.s_tir.meta_schedule")
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    folder.mkdir()
    database = ms.database.JSONDatabase(work_dir=str(folder))
    workload = database.commit_workload(module)
    context = ms.TuneContext(
        mod=module, target=target, space_generator="post-order-apply", num_threads=1
    )
    args = ms.arg_info.ArgInfo.from_prim_func(module["main"])
    for n, schedule in enumerate(context.generate_design_space()):
        schedule.enter_postproc()
        assert all(post.apply(schedule) for post in context.space_generator.postprocs)
        secs = [0.25 / (n + 1), 0.5]
        record = ms.database.TuningRecord(schedule.trace, workload, secs, target, args)
        database.commit_tuning_record(record)
    return target


def test_a_workload_keeps_its_name_when_its_weights_were_moved(tmp_path: Path) -> None:
    """A record lists its arguments as its schedule left them: a packed weight has more axes."""
    module = matmul_module()
    moved = module["main"].with_attr("layout_free_buffers", [1])
    free = import_tvm().IRModule({"main": moved})
    make_database(tmp_path / "db", free)
    path = tmp_path / "db" / "database_tuning_record.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for _, (_, _, _, args) in lines:
        args[1][2] = [2, 32, 16]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = {m.program.workload.id for m in read_records(tmp_path / "db", "cpu")}
    assert found == {workload_of(free).id}


def test_stock_tvm_applies_what_we_export(tmp_path: Path) -> None:
    module = matmul_module()
    target = make_database(tmp_path / "db", module)
    store = Store.open(tmp_path / "store", create=True)
    added = store.ingest(read_records(tmp_path / "db", "cpu"))
    assert added > 1
    (workload,) = store.workloads().values()
    assert (workload.operator, workload.source) == ("C", "tvm")

    exported = write_metaschedule(store.measurements(), tmp_path / "out")
    assert exported.written == added
    assert store.ingest(read_records(tmp_path / "out", "cpu")) == 0

    ms = importlib.import_module("tvm.s_tir.meta_schedule")
    ir = importlib.import_module("tvm.ir")
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "out"))
    assert len(database) == added
    original = ms.database.JSONDatabase(work_dir=str(tmp_path / "db"))
    ours = database.query_schedule(module, target, "main")
    theirs = original.query_schedule(module, target, "main")
    assert ours is not None
    ir.assert_structural_equal(ours.mod, theirs.mod)
    tvm = import_tvm()
    assert tvm.compile(ours.mod, target=target) is not None


def test_the_imported_workload_is_the_one_the_farm_would_make(tmp_path: Path) -> None:
    module = matmul_module()
    make_database(tmp_path / "db", module)
    imported = next(read_records(tmp_path / "db", "cpu")).program.workload
    assert imported.id == workload_of(module).id
    assert import_tvm().ir.load_json(imported.module) is not None


def test_a_program_of_ours_is_exported_complete_and_imported_as_itself(tmp_path: Path) -> None:
    """Our sketches hold no platform's numbers; stock TVM's records must."""
    tvm = import_tvm()
    module = matmul_module()
    target = '{"kind":"llvm","num-cores":2}'
    (schedule,) = random_schedules(module, Target.from_json(target), 1)
    program = from_schedule(schedule, workload_of(module)).program
    measured = Measurement(
        program=program,
        platform=Platform(name="cpu", target=target),
        status=Status.OK,
        run_secs=(1e-3,),
    )
    assert write_metaschedule([measured], tmp_path / "out").written == 1
    assert next(read_records(tmp_path / "out", "cpu")).program.id == program.id

    ms = importlib.import_module("tvm.s_tir.meta_schedule")
    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "out"))
    applied = database.query_schedule(module, tvm.target.Target(json.loads(target)), "main")
    tvm.ir.assert_structural_equal(applied.mod, schedule.mod)
    instructions, _ = plain(applied.trace.as_json())
    written = [i[1] for i in instructions if i[2][:1] == ["meta_schedule.parallel"]]
    assert written[0][1] == 32
