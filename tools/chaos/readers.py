"""Every reader of files from elsewhere, given damaged ones: one line, or a whole answer.

A reader prepares good files once; then each attempt damages one of them, and reads. What is read
must be right, too, where checksums promise that it is.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from mutations import damaged_archive, damaged_bytes, damaged_json, flipped
from tensorese.records.nouns import Measurement
from tensorese.records.store import Store

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = "znver4-2c"
Damage = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True, kw_only=True)
class Damaged:
    file: str = ""
    """Below the folder; empty while all are whole."""
    cut: bool = False
    """Whether it has another length, so that lines may be gone and the rest be whole."""


class Wrong(Exception):
    """A reader gave what was never written, or kept silent about what is gone."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    share: int
    """Of 10,000 attempts."""
    prepare: Callable[[Path], None]
    read: Callable[[Path, Damaged], None]
    """Raises nothing but `TensoreseError`."""
    damages: Callable[[str], tuple[Damage, ...]]
    """By a file's name."""


@cache
def real_rows(count: int) -> list[Measurement]:
    """Of the store in the repository: several sketches and workloads, traces as they are."""
    with Store.open(ROOT / "data" / "again") as store:
        rows = list(store.measurements(platform=PLATFORM))
    return rows[:: max(1, len(rows) // count)][:count]


# -- records of others -----------------------------------------------------------------------


def _ansor_log(folder: Path) -> None:
    steps = [["SP", 2, 0, 64, [4, 2], 1], ["SP", 2, 2, 32, [8], 1], ["RE", 2, [0, 2, 1, 3]]]
    steps += [["AN", 2, 0, 3], ["PR", 2, 0, "auto_unroll_max_step$16"], ["FU", 2, [0, 1]]]
    lines = []
    for number in range(6):
        steps[0][4] = [2**number, 2]
        task = ['["matmul_layer", 64, 32, 16]', "llvm -keys=cpu -mcpu=core-avx2", [8], "", 1, []]
        result = [[0.5 + number, 0.7], 0 if number else 4, 1.25, 1_600_000_000 + number]
        lines.append(json.dumps({"i": [task, [[], steps]], "r": result, "v": "v0.6"}))
    (folder / "log.json").write_text("\n".join(lines) + "\n")


def _read_records(path: Path) -> None:
    from tensorese.errors import TensoreseError
    from tensorese.records.importers import Skipped, of_one_kind, read_records
    from tensorese.records.parts import to_table
    from tensorese.records.rows import measurement_row

    for allowed in (True, False):
        try:
            rows = list(of_one_kind(read_records(path, "box", skipped=Skipped(allowed=allowed))))
        except TensoreseError:
            if not allowed:
                raise
            continue
        to_table("measurements", [measurement_row(m) for m in rows])
        for row in rows:
            if not row.latency > 0 and row.status == "ok":
                raise Wrong(f"a valid measurement takes {row.run_secs} s")


def _database(folder: Path) -> None:
    from tensorese.records.exporters.metaschedule import write_metaschedule

    if write_metaschedule(real_rows(8), folder).written == 0:
        raise RuntimeError("no row of the repository's store can be exported")


# -- networks --------------------------------------------------------------------------------


def _onnx_file(folder: Path) -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"w": (4, 3, 3, 3), "b": (4,), "m": (16, 5), "s": (2,), "q": (4,)}
    weights = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    weights["s"] = np.array([1, 16], np.int64)
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["c", "q", "b", "b", "q"], ["n"], epsilon=1e-3),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["p", "s"], ["f"]),
        node("MatMul", ["f", "m"], ["d"]),
        node("Softmax", ["d"], ["y"], axis=-1),
    ]
    weights["q"] = np.abs(weights["q"]) + 0.5
    weights["b"] = np.abs(weights["b"]) + 0.5
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "m.onnx")


def _archive(folder: Path) -> None:
    from tensorese.tvm_env import import_tvm

    import_tvm()
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 4)]
    network = nn.Sequential(*layers).eval()
    program = torch.export.export(network, (torch.randn(1, 3, 8, 8),))
    torch.export.save(program, folder / "m.pt2")


def _read_network(path: Path) -> None:
    from tensorese.workloads import load_network, tasks_of

    network = load_network(str(path))
    network.example()
    tasks_of(network, '{"kind":"llvm","num-cores":1}')


def _reordered(data: bytes, rng: random.Random) -> bytes:
    """An ONNX file that still parses, with one number, name or node changed."""
    import onnx

    model = onnx.load_model_from_string(data)
    node = rng.choice(model.graph.node)
    match rng.randrange(6):
        case 0:
            node.op_type = rng.choice(["Conv", "Gather", "If", "Loop", "Resize", "Foo", "Concat"])
        case 1 if node.attribute:
            one = rng.choice(node.attribute)
            one.i = rng.choice([-1, 0, 2**40, 7])
            if one.ints:
                one.ints[rng.randrange(len(one.ints))] = rng.choice([-1, 0, 2**40, 7])
        case 2:
            node.input[rng.randrange(len(node.input))] = rng.choice(["", "nobody", "x", "y", "w"])
        case 3:
            tensor = rng.choice(model.graph.initializer)
            if tensor.dims:
                tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice([-1, 0, 2**40, 5, 2**62])
            tensor.data_type = rng.choice([tensor.data_type, 2, 7, 10, 16, 99])
        case 4:
            value = rng.choice([*model.graph.input, *model.graph.output])
            shape = value.type.tensor_type.shape
            shape.dim[rng.randrange(len(shape.dim))].dim_value = rng.choice([-1, 0, 2**40, 5])
        case _:
            nodes = list(model.graph.node)
            rng.shuffle(nodes)
            del model.graph.node[:]
            model.graph.node.extend(nodes[rng.randrange(2) :])
    return bytes(model.SerializeToString())


# -- folders of our own ----------------------------------------------------------------------


def _run_folder(folder: Path) -> None:
    from tensorese.records.run_entries import BestProgram, Pending, PendingRow, RunHead
    from tensorese.records.run_folder import RunFolder

    rows = real_rows(12)
    head = RunHead(
        model="m.onnx",
        network="m",
        target='{"kind":"llvm","num-cores":2}',
        platform=rows[0].platform.name,
        tasks=[_described(m) for m in rows[:3]],
        toolchain={"tvm": "0.27"},
        config={"trials": 8, "proposer": "evolution"},
        environment={"host": "h", "cores": 2},
        peak_gflops=100.0,
    )
    run = RunFolder.open(folder, head)
    run.store.append_many(rows)
    named = [{"program": m.program.id, "measurement": m.id, "score": 0.5} for m in rows]
    for number in range(3):
        sketch = rows[number].program.sketch.id
        row = PendingRow(sketch=sketch, row=(1, 2), origin="evolution", score=0.5)
        run.begin(Pending(number=number, task=rows[number].program.workload.id, rows=[row]))
    for number in range(2):
        proposed = [{**one, "origin": "evolution"} for one in named[number : number + 2]]
        task = rows[number].program.workload.id
        phases = {"measure": 1.0}
        line = {"secs": 1.5, "trials": 2, "task": task, "proposed": proposed, "phases": phases}
        run.finish(number, line)
    run.write_best({m.program.workload.id: _best(m, BestProgram) for m in rows[:2]})
    run.close()
    certificate = {
        "signature": {"target": head.target, "inputs": [], "outputs": []},
        "library": {"sha256": sha256(b"").hexdigest()},
        "latencies": {"tuned": {"median": 1e-3}, "untuned": {"median": 2e-3}},
    }
    (folder / "certificate.json").write_text(json.dumps(certificate))
    (folder / "bench.json").write_text(json.dumps({"systems": {"tuned": {"median": 1e-3}}}))
    (folder / "library.so").write_bytes(b"")


def _described(m: Measurement) -> dict[str, object]:
    workload = m.program.workload
    shapes = ["x".join(map(str, arg.shape)) for arg in workload.args]
    return {
        **{"workload": workload.id, "name": workload.operator, "operator": workload.operator},
        **{"weight": 1, "flops": 1e6, "shapes": shapes},
    }


def _best(m: Measurement, kind: type) -> dict[str, object]:
    best = kind(
        sketch=m.program.sketch,
        decisions=m.program.decisions,
        tail=m.program.tail,
        latency=m.latency if m.latency > 0 else 1e-3,
        name=m.program.workload.operator,
        weight=1,
        flops=1e6,
    )
    entry: dict[str, object] = best.to_dict(m.program.workload)
    return entry


def _read_run(folder: Path) -> None:
    from tensorese.deploy.folder import read_run
    from tensorese.deploy.library import load
    from tensorese.report.write import write_report

    _each(lambda: read_run(folder), lambda: load(folder), lambda: write_report(folder))
    _reopened(folder)


def _reopened(folder: Path) -> None:
    from tensorese.records.run_entries import RunHead
    from tensorese.records.run_folder import RunFolder

    rows = real_rows(12)
    head = RunHead(
        model="m.onnx",
        network="m",
        target='{"kind":"llvm","num-cores":2}',
        platform=rows[0].platform.name,
        tasks=[_described(m) for m in rows[:3]],
        toolchain={"tvm": "0.27"},
    )
    run = RunFolder.open(folder, head)
    try:
        list(run.store.measurements())
        run.outcomes(["status", "latency"])
        if not (run.trials >= 0 and run.earlier_secs >= 0 and run.best_is_whole in (True, False)):
            raise Wrong("a run of fewer than no trials or seconds")
    finally:
        run.close()


def _each(*calls: Callable[[], object]) -> None:
    """All of them; one that refuses does not keep the others from being tried."""
    from tensorese.errors import TensoreseError

    refused: TensoreseError | None = None
    for call in calls:
        try:
            call()
        except TensoreseError as error:
            refused = error
    if refused is not None and "\n" in str(refused):
        raise Wrong(f"more than one line: {refused}")


def _models(folder: Path) -> None:
    from models_support import MAKERS

    from tensorese.features.matrix import MatrixSpec
    from tensorese.models.base import Card, save_model

    for kind, make in MAKERS.items():
        card = Card(command="made", training_workloads=("w",), targets={"one-1c": "{}"})
        save_model(folder / kind, make(MatrixSpec(physics=False), "cpu", ("one-1c",)), card)


def _read_models(folder: Path, damaged: Damaged) -> None:
    import numpy as np

    from tensorese.models.base import load_model
    from tensorese.models.catalog import kept_models

    kind = damaged.file.partition("/")[0]
    for kept in kept_models([folder], {}):
        if kind not in ("", kept.folder.name):
            continue
        model = load_model(kept.folder)
        if model.needs.shape == "row":
            from tensorese.features.physics import feature_names

            machine = model.needs.name.removeprefix("physics-")
            rows = np.ones((2, len(feature_names(machine))), np.float32)
            if model.rank(rows, kept.head).shape != (2,):
                raise Wrong("not one score a program")


def resealed(data: bytes, rng: random.Random) -> bytes:
    """Damaged weights, for which `reseal` finds the checksum that fits."""
    return damaged_bytes(data, rng)


def reseal(folder: Path) -> None:
    """Checksums of whoever writes both files: what they guard must be refused without them."""
    for config in folder.glob("*/config.json"):
        try:
            head = json.loads(config.read_text())
            head["weights_sha256"] = sha256(
                (config.parent / "model.safetensors").read_bytes()
            ).hexdigest()
        except (ValueError, TypeError, OSError, RecursionError):
            continue
        config.write_text(json.dumps(head))


def _store(folder: Path) -> None:
    rows = real_rows(40)
    with Store.open(folder, create=True) as store:
        store.ingest(rows[:20])
        store.append_many(rows[20:])


def _read_store(folder: Path, damaged: Damaged) -> None:
    from tensorese.records.verify import verify

    known = {m.id: m for m in real_rows(40)}
    found: dict[str, Measurement] = {}
    with Store.open(folder) as store:
        for m in store.measurements():
            found[m.id] = m
            if m.id not in known or _values(m) != _values(known[m.id]):
                raise Wrong(f"measurement {m.id} is not what was written")
        info = store.info()
        for platform in info["platforms"]:
            store.best(platform)
        verify(store)
        if len(found) < len(known) and not (damaged.cut or store.problems or info["problems"]):
            raise Wrong(f"{len(known) - len(found)} rows are gone and nothing says so")


def _values(m: Measurement) -> tuple[object, ...]:
    return (m.program.id, m.platform.name, m.status, m.run_secs, m.error, m.origin, m.split)


# -- all of them -----------------------------------------------------------------------------

_TEXT: tuple[Damage, ...] = (damaged_bytes, damaged_json, damaged_json)


def _of_json(name: str) -> tuple[Damage, ...]:
    return _TEXT if name.endswith((".json", ".jsonl")) else (damaged_bytes, flipped)


READERS = {
    "Ansor log": Reader(
        share=3000,
        prepare=_ansor_log,
        read=lambda folder, damaged: _read_records(folder / "log.json"),
        damages=lambda name: _TEXT,
    ),
    "MetaSchedule database": Reader(
        share=1800,
        prepare=_database,
        read=lambda folder, damaged: _read_records(folder),
        damages=lambda name: _TEXT,
    ),
    "ONNX": Reader(
        share=700,
        prepare=_onnx_file,
        read=lambda folder, damaged: _read_network(folder / "m.onnx"),
        damages=lambda name: (damaged_bytes, _reordered, _reordered),
    ),
    ".pt2": Reader(
        share=300,
        prepare=_archive,
        read=lambda folder, damaged: _read_network(folder / "m.pt2"),
        damages=lambda name: (damaged_bytes, damaged_archive, damaged_archive),
    ),
    "run folder": Reader(
        share=1400,
        prepare=_run_folder,
        read=lambda folder, damaged: _read_run(folder),
        damages=_of_json,
    ),
    "model folder": Reader(
        share=1400,
        prepare=_models,
        read=_read_models,
        damages=lambda name: (*_of_json(name), resealed),
    ),
    "store": Reader(
        share=1400,
        prepare=_store,
        read=_read_store,
        damages=lambda name: (flipped, flipped, damaged_bytes),
    ),
}
