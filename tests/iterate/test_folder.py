from __future__ import annotations

from pathlib import Path

import pytest

from rounds_support import CONFIG, open_run, records, tasks_of
from tensorese.iterate.config import IterateConfig, IterateError
from tensorese.iterate.folder import CURVE, MODEL, IterationFolder
from tensorese.iterate.page import curve, page

pytestmark = pytest.mark.null

TASKS = tasks_of(records(tasks=2, per_task=4))
LINE = {
    "round": 0, "trials": 4, "secs": 1.0, "sum": 3.0, "gain": None, "tasks": 1,
    "best": {TASKS[0].workload.id: 3.0}, "statuses": {"ok": 4}, "model": "base", "learnt": 0,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> IterationFolder:
    return open_run(tmp_path / "run", TASKS, CONFIG)


def test_a_line_that_was_written_half_is_cut(folder: IterationFolder) -> None:
    folder.finish(LINE)
    with (folder.path / CURVE).open("a") as file:
        file.write('{"round": 1, "tri')
    again = open_run(folder.path, TASKS, CONFIG)
    assert again.rounds == [LINE]
    again.finish({**LINE, "round": 1})
    assert [line["round"] for line in IterationFolder.read(folder.path).rounds] == [0, 1]


def test_the_model_is_replaced_whole(folder: IterationFolder) -> None:
    for text in ("one", "two"):
        source = folder.path / "models" / text
        source.mkdir()
        (source / "config.json").write_text(text)
        folder.place_model(source)
    place = folder.path / MODEL
    assert (place / "config.json").read_text() == "two"
    place.rename(folder.path / ".model.old")  # killed between two renames
    open_run(folder.path, TASKS, CONFIG)
    assert (place / "config.json").read_text() == "two"


def test_what_a_killed_process_left_half_is_swept_away(folder: IterationFolder) -> None:
    for name in ("batches/.001.json.77", "models/.001-0.safetensors"):
        (folder.path / name).write_text("half")
    (folder.path / "models" / ".002.new").mkdir()
    open_run(folder.path, TASKS, CONFIG)
    left = sorted(
        p.name for place in ("batches", "models") for p in (folder.path / place).iterdir()
    )
    assert left == [".001-0.safetensors", "base"], "a checkpoint is gone on from"


def test_foreign_folders_and_damaged_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text("{}")
    with pytest.raises(IterateError, match="holds other files"):
        open_run(tmp_path / "other", TASKS, CONFIG)
    (tmp_path / "file").write_text("")
    with pytest.raises(IterateError, match="is a file"):
        open_run(tmp_path / "file", TASKS, CONFIG)
    folder = open_run(tmp_path / "run", TASKS, CONFIG)
    (folder.path / "batches" / "000.json").write_text('{"number": 0}')
    with pytest.raises(IterateError, match="lacks or garbles 'sketches'"):
        folder.batch(0)
    with pytest.raises(IterateError, match=r"000.json is missing"):
        (folder.path / "batches" / "000.json").unlink()
        folder.batches(2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rounds": 0}, "--rounds must be at least 1, but got 0"),
        ({"per_task": 0}, "--per-task must be at least 1"),
        ({"trials": 0}, "--trials must be at least 1"),
        ({"minutes": 0.0}, "--minutes must be positive"),
        ({"task_share": 1.5}, r"--task-share must be in \(0, 1\]"),
        ({"least_gain": 1.0}, "--least-gain must be in"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, float], said: str) -> None:
    with pytest.raises(IterateError, match=said):
        IterateConfig(**settings)  # type: ignore[arg-type]


def test_the_page_has_the_curve_rounds_and_tasks(folder: IterationFolder) -> None:
    late, early = TASKS[1].workload.id, TASKS[0].workload.id
    lines = [
        LINE,
        {**LINE, "round": 1, "trials": 8, "best": {early: 2.0, late: 5.0}, "gain": None},
        {**LINE, "round": 2, "trials": 12, "best": {early: 2.0, late: 4.0}, "gain": 0.1},
    ]
    weights = {early: 1.0, late: 2.0}
    assert curve(lines, weights) == [(4.0, 13.0), (8.0, 12.0), (12.0, 10.0)]
    html = page(folder.head, lines)
    assert html.count("<svg") == 3 and "10.0 %" in html and "matmul1" in html
    assert "<script" not in html and "http" not in html.replace("http-equiv", "")
    assert "0 rounds" not in page(folder.head, []) and "<svg" not in page(folder.head, [])
