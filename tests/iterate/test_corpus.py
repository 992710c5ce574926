from __future__ import annotations

import json
from pathlib import Path

import pytest

from iterate_support import PLATFORM, TARGET, small_tasks, task_list
from tensorese.cli import run
from tensorese.iterate.corpus import CorpusConfig, CorpusError, write_corpus
from tensorese.records.store import Store
from tensorese.targets import Target

pytestmark = pytest.mark.tvm

SMALL = ("--random", "3", "--best", "3", "--population", "32")
CONFIG = CorpusConfig(random=3, best=0)


def corpus(*arguments: str | Path) -> int:
    return run(["data", "corpus", "--target", TARGET, *map(str, arguments)])


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tasks = [*small_tasks(3), *small_tasks(1, split="test")]
    return task_list(tmp_path_factory.mktemp("tasks") / "tasks.parquet", tasks)


def test_programs_of_training_tasks_are_scored_and_written_once(
    listed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--tasks", listed, "--platform", PLATFORM, "--out", tmp_path / "s", *SMALL)
    assert corpus(*arguments, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["tasks"] == 3 and 3 * 3 < facts["programs"] <= 3 * 6 and not facts["skipped"]
    with Store.open(tmp_path / "s") as store:
        rows = store.program_table().to_pylist()
        workloads = {task.workload.id for task in small_tasks(3)}
    assert {row["workload_id"] for row in rows} == workloads
    assert all(row["score"] is not None for row in rows)
    assert {row["origin"].rpartition("@")[2] for row in rows} == {PLATFORM}
    assert corpus(*arguments) == 0
    assert f"{len(rows)} programs of 3 tasks" in capsys.readouterr().out


def test_interrupted_it_keeps_whole_tasks_and_goes_on(tmp_path: Path) -> None:
    tasks, target = small_tasks(3), Target.parse(TARGET)
    platform = target.platform(PLATFORM)

    def interrupted(done: int, of: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with Store.open(tmp_path / "s", create=True) as store:
        with pytest.raises(KeyboardInterrupt):
            write_corpus(store, tasks, target, platform, config=CONFIG, progress=interrupted)
        assert store.program_table().num_rows == 2 * 3
        write_corpus(store, tasks, target, platform, config=CONFIG)
        assert store.program_table().num_rows == 3 * 3


def test_a_corpus_is_of_one_platform(tmp_path: Path) -> None:
    tasks, target = small_tasks(1), Target.parse(TARGET)
    with Store.open(tmp_path / "s", create=True) as store:
        write_corpus(store, tasks, target, target.platform("one"), config=CONFIG)
        with pytest.raises(CorpusError, match="programs for one and these are for other"):
            write_corpus(store, tasks, target, target.platform("other"), config=CONFIG)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--random", "0", "--best", "0"), "not both be 0"),
        (("--population", "0"), "--population be at least 1"),
        (("--model", "nowhere"), "does not exist"),
        (("--tasks", "nowhere"), "does not exist"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: tuple[str, ...],
    said: str,
    listed: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert corpus("--tasks", listed, "--out", tmp_path / "s", *arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1


def test_a_list_without_tasks_for_the_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = task_list(tmp_path / "tasks.parquet", small_tasks(1, split="test"))
    assert corpus("--tasks", tasks, "--out", tmp_path / "s") == 2
    assert "has no train tasks for llvm targets" in capsys.readouterr().err
    assert (
        run(["data", "corpus", "--tasks", str(tasks), "--target", "cuda:h200", "--out", "s"]) == 2
    )
    assert "has no tasks for cuda targets; it lists llvm" in capsys.readouterr().err
