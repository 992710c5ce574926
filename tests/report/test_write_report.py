"""Reports of runs that went well, badly, or not far."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from run_support import batch, good_run, head, measured, workload, write
from tensorese.errors import StoreError, TensoreseError
from tensorese.records.run_folder import RunFolderError
from tensorese.report import write_report
from tensorese.report.end_to_end import rivals
from tensorese.report.gather import gather
from tensorese.report.progress import span
from tensorese.report.svg import Frame, steps, ticks
from tensorese.report.text import ms

pytestmark = pytest.mark.null


def pictures(text: str) -> list[ET.Element]:
    """Every drawing of the page, which must be well-formed."""
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.S)]


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
    assert "2.00x" in text and "500.0 ms" in text and "+50.0 %" in text
    assert "softmax &lt;b&gt;" in text
    (run / "bench.json").write_text(json.dumps({"latency": {"tuned": {"latency": 4e-3}}}))
    assert "4.000 ms" in write_report(run).read_text()


def test_rivals_come_by_speed_with_their_spread_and_the_absent_with_a_reason(
    tmp_path: Path,
) -> None:
    run = good_run(tmp_path / "run")
    rows = {
        "torch": {"latency": 4e-3, "rounds": [3e-3, 4e-3, 5e-3], "runs": 9},
        "untuned": {"latency": 0.5, "rounds": [0.5], "runs": 1},
        "openvino": {"latency": 2e-3, "rounds": [2e-3, 2e-3], "runs": 9},
        "tuned": {"latency": 1e-3, "rounds": [1e-3, 1e-3], "runs": 9},
        "onnxruntime": {"latency": 3e-3, "rounds": [3e-3, 3e-3], "runs": 9},
    }
    compared = {"latency": rows, "absent": {"torch.compile": "no g++ <here>"}, "disturbed": ["so"]}
    (run / "bench.json").write_text(json.dumps(compared))
    assert [name for name, _ in rivals(gather(run))] == ["openvino", "onnxruntime", "torch"]
    text = write_report(run).read_text()
    tiles = text[: text.index("End to end")]
    assert "untuned" not in tiles
    assert tiles.index("2.00x") < tiles.index("3.00x") < tiles.index("4.00x")
    names = re.findall(r'class="name">(.*?)</span>', text)
    ours = ["untuned", "sum of tasks"]
    assert names[:6] == ["tuned", "openvino", "onnxruntime", "torch", *ours]
    torch = text[text.index('class="name">torch<') :]
    torch = torch[: torch.index("</div>")]
    ends = re.search(r'class="spread" d="M([\d.]+) .*?H([\d.]+)', torch)
    bar = re.search(r'<rect .*?width="([\d.]+)"', torch)
    assert ends and bar and float(ends[1]) < float(bar[1]) < float(ends[2]) <= 100
    assert "±25 %" in torch and "4.000 ms" in torch
    assert "torch.compile is not here: no g++ &lt;here&gt;" in text
    assert "The machine was disturbed, these times are no measure: so" in text


def test_a_library_of_several_shapes_what_was_known_and_where_it_was_timed(tmp_path: Path) -> None:
    run = good_run(tmp_path / "run")

    def shape(text: str, secs: float) -> dict[str, Any]:
        latency = {"tuned": {"latency": secs}, "openvino": {"latency": 2 * secs}}
        return {"shape": text, "latency": latency, "explanation": {"sum_of_tasks": secs / 2}}

    shapes = [shape("ids=1x<32>", 1e-3), shape("ids=1x64", 3e-3)]
    known = {
        "a": {"trials": 1200, "runs": [{"time": 1.0}], "found_by": "run-1"},
        "b": {"trials": 34, "runs": [{"time": 2.0}], "found_by": None},
    }
    certificate = {**shapes[-1], "shapes": shapes, "known": known, "device": "board over RPC"}
    (run / "certificate.json").write_text(json.dumps(certificate))
    text = write_report(run).read_text()
    assert "One library for 2 shapes" in text and "What follows is of ids=1x64." in text
    rows = re.findall(r"<tr>(<td.*?)</tr>", text)
    assert re.findall(r">([^<>]+)</td>", rows[0]) == ["ids=1x&lt;32&gt;", "1.000 ms", "2.000 ms"]
    assert "2 tasks were known from 1,234 trials of earlier runs; 1 of their programs" in text
    assert "timed on board over RPC" in text
    bar = text[text.index('class="name">sum of tasks<') :]
    assert "1.500 ms" in bar[: bar.index("</div>")]  # of the last shape, not of all tasks


def test_an_axis_shows_what_was_gained_after_the_first_results() -> None:
    falls = [(1.0, 100.0), (2.0, 20.0), (20.0, 10.2), (50.0, 10.1), (100.0, 10.0)]
    low, high = span(falls)
    assert 9.0 < low < 10.0 and 20.0 <= high < 22.0
    flat = [(float(x), 10.0) for x in range(9)]
    low, high = span(flat)
    assert low < 10.0 < high < 10.5  # and no mountain
    frame = Frame(x=(0.0, 100.0), y=span(falls))
    path = steps(frame, falls)
    numbers = [float(n) for n in re.findall(r"V([\d.]+)", path)]
    assert len(numbers) == 4 and min(numbers) >= frame.at((0.0, frame.y[1]))[1]


def test_names_that_are_shown_are_explained(tmp_path: Path) -> None:
    text = write_report(good_run(tmp_path / "run")).read_text()
    terms = re.findall(r"<dt>(.*?)</dt>", text)
    assert {"build_error", "measure", "task"} <= set(terms)
    assert "run_timeout" not in terms and "tuned" not in terms


@pytest.mark.parametrize(
    ("secs", "says"),
    [(1.0, "1000 ms"), (0.0106604, "10.66 ms"), (1.23456e-6, "0.001235 ms"), (math.nan, "-")],
)
def test_milliseconds_have_four_digits_and_no_exponent(secs: float, says: str) -> None:
    assert ms(secs) == says


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
