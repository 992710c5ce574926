"""Reports of runs that went well, badly, or not far."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tensorese.errors import StoreError, TensoreseError
from tensorese.records.nouns import (
    Measurement,
    Platform,
    Program,
    Sketch,
    Status,
    TensorSpec,
    Workload,
)
from tensorese.records.run_folder import RunFolderError
from tensorese.records.store import Store
from tensorese.report import write_report
from tensorese.report.gather import gather
from tensorese.report.svg import ticks

pytestmark = pytest.mark.null

SKETCH = Sketch(dialect="metaschedule", body="[[],[]]", slots=((0, -1),))
PLATFORM = Platform(name="here")


def workload(n: int) -> Workload:
    return Workload(operator="matmul", args=(TensorSpec(shape=(n, n), dtype="float32"),))


def program(n: int, row: int) -> Program:
    return Program(workload=workload(n), sketch=SKETCH, decisions=(row,))


def head(*sizes: int, **more: Any) -> dict[str, Any]:
    tasks = [
        {
            "workload": workload(n).id,
            "name": f"matmul{n}",
            "operator": "dense",
            "weight": 2,
            "flops": 2e6,
            "shapes": [f"{n}x{n}"],
        }
        for n in sizes
    ]
    return {
        "version": 1,
        "model": "zoo:x",
        "network": "x",
        "target": "{}",
        "platform": "here",
        "tasks": tasks,
        "state": "finished",
        "seconds": 100.0,
        **more,
    }


def batch(n: int, secs: float, rows: list[int], best: float | None) -> dict[str, Any]:
    proposed = [
        {"program": program(n, r).id, "measurement": f"{n}-{r}", "score": -r, "origin": "test"}
        for r in rows
    ]
    return {
        "batch": 0,
        "secs": secs,
        "task": workload(n).id,
        "trials": 0,
        "proposed": proposed,
        "phases": {"propose": 1.0, "measure": 2.0},
        "best": best,
    }


def measured(n: int, row: int, secs: float | None, error: str = "") -> Measurement:
    status = Status.BUILD_ERROR if secs is None else Status.OK
    return Measurement(
        program=program(n, row),
        platform=PLATFORM,
        status=status,
        run_secs=() if secs is None else (secs,),
        error=error,
    )


def write(folder: Path, head: dict[str, Any], batches: list[Any], rows: list[Measurement]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(head))
    (folder / "batches.jsonl").write_text("".join(json.dumps(b) + "\n" for b in batches))
    with Store.open(folder / "store", create=True) as store:
        store.append_many(rows)
    return folder


def pictures(text: str) -> list[ET.Element]:
    """Every drawing of the page, which must be well-formed."""
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.S)]


def good_run(folder: Path) -> Path:
    rows = [measured(8, r, 1e-3 / (1 + r)) for r in range(4)] + [measured(8, 9, None, "boom")]
    batches = [batch(8, 10.0, [0, 1, 2], 1e-3 / 3), batch(8, 20.0, [3, 9], 1e-3 / 4)]
    return write(folder, head(8, peak_gflops=100.0), batches, rows)


def test_a_good_run_shows_progress_tasks_failures_and_predictions(tmp_path: Path) -> None:
    run = good_run(tmp_path / "run")
    report = gather(run)
    assert report.trials == 5
    assert list(report.by_trials) == [(3.0, 2 * 1e-3 / 3), (5.0, 2 * 1e-3 / 4)]
    assert list(report.by_time) == [(10.0, 2 * 1e-3 / 3), (20.0, 2 * 1e-3 / 4)]
    (task,) = report.tasks
    assert task.trials == 5 and task.failures == 1
    assert task.gflops == pytest.approx(2e6 / 2.5e-4 / 1e9)
    assert report.failures == [("build_error", 1, "boom")]
    # Later rows score lower and run faster: this model is wrong throughout.
    assert report.agreement == pytest.approx(-1.0)
    text = write_report(run).read_text()
    assert len(pictures(text)) >= 5
    assert "boom" in text and "% of peak" in text
    assert "http" not in text and "<script" not in text


def test_the_end_to_end_table_prefers_the_newer_bench(tmp_path: Path) -> None:
    run = good_run(tmp_path / "run")
    rows = {"tuned": {"latency": 1e-3}, "untuned": {"latency": 0.5}, "torch": {"latency": 2e-3}}
    explanation = {"gap": 0.5, "causes": ["softmax <b> has no tuned program"]}
    certificate = {"latency": rows, "explanation": explanation}
    (run / "certificate.json").write_text(json.dumps(certificate))
    text = write_report(run).read_text()
    assert "2.00x" in text and "500 ms" in text and "+50.0 %" in text
    assert "softmax &lt;b&gt;" in text
    (run / "bench.json").write_text(json.dumps({"latency": {"tuned": {"latency": 4e-3}}}))
    assert "4 ms" in write_report(run).read_text()


def test_kernels_in_place_are_named_by_what_they_add(tmp_path: Path) -> None:
    run = good_run(tmp_path / "run")
    kernels = [
        {"kernel": "a1", "secs": 3e-3, "calls": 2, "workload": workload(8).id, "promised": 1e-3},
        {"kernel": "odd<i>", "secs": 4e-3, "calls": 1, "workload": None, "promised": None},
        {"kernel": "b1", "secs": 5e-3, "calls": 1, "workload": "gone", "promised": 6e-3},
    ]
    explanation = {"gap": 0.5, "causes": [], "between_kernels": 2.5e-4}
    certificate = {
        "latency": {"tuned": {"latency": 1e-2}},
        "explanation": explanation,
        "kernels": kernels,
    }
    (run / "certificate.json").write_text(json.dumps(certificate))
    text = write_report(run).read_text()
    section = text[text.index("Kernels in place") :]
    assert section.index("odd&lt;i&gt;") < section.index("matmul8") < section.index("b1")
    for said in ("+2.000", "-1.000", "untuned", "0.25 ms between kernels", "4 ms."):
        assert said in section


def test_nothing_succeeded(tmp_path: Path) -> None:
    rows = [measured(8, 0, None, "no"), measured(8, 1, None, "no")]
    run = write(tmp_path / "run", head(8), [batch(8, 5.0, [0, 1], None)], rows)
    text = write_report(run).read_text()
    assert "No program has been measured successfully" in text
    assert pictures(text) and "nan" not in text.lower().replace("tenant", "")


def test_nothing_at_all_was_measured(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps(head(state="interrupted", seconds=0.0)))
    text = write_report(run).read_text()
    assert "interrupted" in text and "no tasks" in text


def test_a_half_written_line_is_left_out(tmp_path: Path) -> None:
    run = good_run(tmp_path / "run")
    with (run / "batches.jsonl").open("a") as file:
        file.write('{"secs": 30.0, "task"')
    assert gather(run).trials == 5


def test_names_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>"
    named = head(8, network=evil, model=evil)
    named["tasks"][0] |= {"name": evil, "operator": evil, "shapes": [evil]}
    rows = [measured(8, 0, 1e-3), measured(8, 1, None, evil)]
    run = write(tmp_path / "run", named, [batch(8, 5.0, [0, 1], 1e-3)], rows)
    assert "<script" not in write_report(run).read_text()


def test_a_task_not_reached_counts_with_its_first_result(tmp_path: Path) -> None:
    rows = [measured(8, 0, 1e-3), measured(4, 0, 5e-3)]
    batches = [batch(8, 5.0, [0], 1e-3), batch(4, 9.0, [0], 5e-3)]
    report = gather(write(tmp_path / "run", head(8, 4, 2), batches, rows))
    assert [y for _, y in report.by_trials] == [pytest.approx(12e-3)] * 2
    assert math.isnan(report.tasks[2].latency)


def test_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"run\.json must be readable"):
        write_report(tmp_path)


@pytest.mark.parametrize("change", [{"tasks": "all"}, {"network": "\ud800"}, {"tasks": [3]}])
def test_a_garbled_run_is_one_line(tmp_path: Path, change: dict[str, Any]) -> None:
    run = good_run(tmp_path / "run")
    garbled = {**json.loads((run / "run.json").read_text()), **change}
    (run / "run.json").write_text(json.dumps(garbled))
    with pytest.raises(TensoreseError, match="lacks or garbles") as caught:
        write_report(run)
    assert "\n" not in str(caught.value)


def test_a_read_only_folder_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = good_run(tmp_path / "run")

    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(StoreError, match="must be writable"):
        write_report(run)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 7.3e-5), (3.0, 3.0), (0.0, 4.2e7)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 1 <= len(found) <= 7
    assert all(low <= value <= high * (1 + 1e-9) for value in found)


def test_programs_that_nobody_timed_have_no_numbers(tmp_path: Path) -> None:
    chosen = {"latency": None, "origin": "evolution:<x>"}
    run = write(tmp_path / "run", head(8, 16), [], [])
    (run / "best.json").write_text(json.dumps({workload(8).id: chosen}))
    unmeasured = {"programs": {workload(8).id: "evolution:<x>"}, "judged_for": "elsewhere-2c"}
    checks = {"against": {"torch": {"passed": True, "max_error": 1e-7}}}
    certificate = {"platform": "here", "unmeasured": unmeasured, "verification": checks}
    (run / "certificate.json").write_text(json.dumps(certificate))
    report = gather(run)
    assert [task.chosen for task in report.tasks] == ["evolution:<x>", ""]
    assert math.isnan(report.sum_of_tasks)
    text = write_report(run).read_text()
    assert "Nothing was timed to choose 1 of the programs" in text
    assert "speaks for elsewhere-2c, the library is for here" in text
    assert "verified against torch (1.0e-07)" in text and "was not timed" in text
    assert "not timed, from evolution:&lt;x&gt;" in text
    assert "nan" not in text.lower() and "Not compiled yet" not in text
    certificate["verification"] = {"against": {}, "skipped": "no cuda device"}
    (run / "certificate.json").write_text(json.dumps(certificate))
    assert "Outputs were not verified: no cuda device." in write_report(run).read_text()
    kernels = [{"kernel": "a", "secs": 1e-3, "calls": 1, "promised": None, "origin": "x"}]
    timed = {"latency": {"tuned": {"latency": 2e-3}}, "kernels": kernels, "explanation": {}}
    (run / "bench.json").write_text(json.dumps(timed))
    text = write_report(run).read_text()
    assert "Chosen without timing: 1 ms." in text and "Without a tuned program" not in text
