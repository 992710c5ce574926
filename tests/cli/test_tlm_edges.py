"""Models that write, on the command line: what cannot be used or learnt from is one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpu_records_support import cpu_measurements
from iterate_support import PLATFORM, TARGET, micro_model, small_tasks, task_list
from tensorese.cli import run
from tensorese.models.base import CONFIG
from tensorese.records.nouns import Measurement, Status
from tensorese.records.store import Store

pytestmark = pytest.mark.null

TINY = ["--set", "heads=2", "--set", "width=16", "--set", "layers=1", "--set", "tasks=2"]
TINY += ["--set", "rows=2", "--set", "bf16=false", "--set", "pretrain=0", "--device", "cpu"]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The last line; `tune` tells before it which ranker it begins with."""
    capsys.readouterr()
    assert run(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    line = err.rstrip("\n").rpartition("\n")[2]
    assert line.startswith("tensorese: "), err
    return line


def store(folder: Path, records: list[Measurement]) -> str:
    with Store.open(folder, create=True) as opened:
        opened.ingest(records)
    return str(folder)


def train(folder: Path, records: list[Measurement], *more: str) -> list[str]:
    data = store(folder / "store", records)
    return ["train", "tlm", "--data", data, "--out", str(folder / "model"), *TINY, *more]


def changed(folder: Path, edit: Any) -> str:
    """A model that writes, with something else in its config."""
    micro_model(folder)
    config = json.loads((folder / CONFIG).read_text())
    edit(config)
    (folder / CONFIG).write_text(json.dumps(config))
    return str(folder)


def other_words(config: dict[str, Any]) -> None:
    config["features"]["version"] = "0badcafe"


def other_size(config: dict[str, Any]) -> None:
    config["section"]["network"]["width"] = 32


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (other_words, "has sentence 0badcafe and this program has sentence"),
        (other_size, "must describe one model"),
    ],
)
def test_a_model_of_another_vocabulary_or_size_is_refused_by_every_verb(
    edit: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = changed(tmp_path / "model", edit), str(tmp_path / "run")
    tasks = str(task_list(tmp_path / "tasks.parquet", small_tasks(1)))
    tune = ["tune", "zoo:bert_tiny", "--target", TARGET, "--proposer", f"tlm:{model}"]
    for given in (
        [*tune, "--trials", "0", "--out", out],
        ["iterate", "--tasks", tasks, "--target", TARGET, "--model", model, "--out", out],
        ["eval", model, "--data", store(tmp_path / "store", list(cpu_measurements([PLATFORM])))],
    ):
        assert said in refused(capsys, *given)
    assert not list((tmp_path / "run").glob("[!.]*")), "nothing is begun"


def test_an_empty_fine_tuning_set_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = list(cpu_measurements([PLATFORM], tasks=4, per_task=3))
    failed = [replace(m, status=Status.BUILD_ERROR, run_secs=()) for m in records]
    said = refused(capsys, *train(tmp_path / "failed", failed))
    assert "all 12 records failed" in said
    said = refused(capsys, *train(tmp_path / "single", [*records[::3], *failed[1::3]]))
    assert "none of these records' 4 tasks has so many" in said
    apart = [renamed(m, k) for k, m in enumerate(records)]
    more = ("--set", "steps=1", "--set", "preference=1")
    said = refused(capsys, *train(tmp_path / "apart", apart, *more))
    assert "no sketch has two; add records, or leave preference at 0" in said


def renamed(measurement: Measurement, number: int) -> Measurement:
    """In a sketch of its own: the same with another annotation."""
    sketch = measurement.program.sketch
    body = sketch.body.replace("meta_schedule.parallel", f"meta_schedule.parallel_{number}")
    program = replace(measurement.program, sketch=replace(sketch, body=body))
    return replace(measurement, program=program)


def test_a_checkpoint_of_another_size_is_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = list(cpu_measurements([PLATFORM], tasks=4, per_task=6))
    given = train(tmp_path, records, "--set", "steps=1000000")
    with subprocess.Popen(
        [sys.executable, "-m", "tensorese", *given], stderr=subprocess.DEVNULL
    ) as begun:
        while begun.poll() is None and not list((tmp_path / "model").glob("*checkpoint*")):
            time.sleep(0.1)
        os.kill(begun.pid, signal.SIGKILL)
    wider = [word.replace("width=16", "width=32") for word in given]
    said = refused(capsys, *wider, "--resume")
    assert (
        "resumes with its own settings" in said and "'width': 16" in said and "'width': 32" in said
    )
