"""Datasets as shipped: what is left out, what the card counts, who is nearest to whom."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from measurements_support import MeasurementMaker, matmul_measurement
from tensorese.collect.card import card
from tensorese.collect.dataset import nearest_train, platform_facts, publish, shared_programs
from tensorese.collect.publish import CardText, publish_dataset
from tensorese.collect.tasklist import ListedTask, read_tasks
from tensorese.errors import StoreError
from tensorese.records.nouns import Measurement, Status, TensorSpec, Workload
from tensorese.records.store import Store
from tensorese.records.verify import verify

pytestmark = pytest.mark.null

DATA = Path(__file__).parents[2] / "data"
SHIPPED = sorted(path.parent for path in DATA.glob("*/store.json"))


def listed(*shape: int, operator: str = "conv2d", split: str = "") -> ListedTask:
    spec = TensorSpec(shape=shape, dtype="float32")
    workload = Workload(operator=operator, args=(spec,))
    return ListedTask(workload=workload, kind="llvm", operator=operator, split=split, name="x")


def timed(*, decisions: tuple[int, ...], cache: str) -> Measurement:
    timing = {"cache": cache, "threads": 4, "co_runners": 0}
    return matmul_measurement(decisions=decisions, platform="one", origin="random", timing=timing)


@pytest.fixture
def collected(tmp_path: Path, make_measurement: MeasurementMaker) -> Path:
    rows: list[Measurement] = []
    for platform in ("one", "two"):
        for i in range(1, 4):
            rows.append(make_measurement(decisions=(i, 1, 1), platform=platform, origin="random"))
    tailed = make_measurement(decisions=(9, 1, 1), platform="one", origin="mutation")
    rows.append(replace(tailed, program=replace(tailed.program, tail='[["Unroll"]]'), split="test"))
    rows.append(make_measurement(decisions=(8, 1, 1), platform="one", status=Status.BUILD_ERROR))
    rows.append(make_measurement(decisions=(7, 1, 1), platform="one", status=Status.INFRA_ERROR))
    with Store.open(tmp_path / "raw", create=True) as store:
        store.append_many(rows)
    return tmp_path / "raw"


def test_publishing_drops_tails_and_faults_of_the_machinery_and_adds_once(
    collected: Path, tmp_path: Path
) -> None:
    out = tmp_path / "data"
    assert publish([collected], out) == 8
    assert publish([collected], out) == 0
    with Store.open(out) as store:
        rows = store.table(["tail", "status"]).to_pylist()
    assert {row["tail"] for row in rows} == {""}
    assert Status.INFRA_ERROR not in {row["status"] for row in rows}


def test_published_times_keep_the_digits_that_a_clock_is_good_for(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    given = replace(
        make_measurement(),
        run_secs=(1.23456789123e-5, 9.87654321e-4),
        build_secs=0.123456789,
        timing={"disturbed": [0.0289886860], "number": 3},
        time=1794883160.2712858,
    )
    with Store.open(tmp_path / "raw", create=True) as store:
        store.append_many([given, replace(make_measurement(), status=Status.BUILD_ERROR)])
    publish([tmp_path / "raw"], tmp_path / "data")
    with Store.open(tmp_path / "data") as store:
        ok, failed = sorted(store.measurements(), key=lambda row: row.status is not Status.OK)
    assert ok.run_secs == pytest.approx(given.run_secs, rel=1e-7, abs=0)
    assert all((secs * 2**60) % 2**20 == 0 for secs in ok.run_secs)
    assert ok.build_secs == pytest.approx(given.build_secs, abs=1e-3)
    assert ok.timing == {"disturbed": [0.028989], "number": 3}
    assert ok.time == pytest.approx(given.time, abs=1e-3, rel=0)
    assert math.isnan(failed.latency)


def test_a_card_counts_valid_programs_test_tasks_and_what_is_shared(
    collected: Path, tmp_path: Path
) -> None:
    publish([collected], tmp_path / "data")
    with Store.open(tmp_path / "data") as store:
        workload = next(iter(store.workloads()))
        facts = platform_facts(store, "one", {workload: "dense"})
        assert (facts.programs, facts.valid, facts.test_programs) == (5, 4, 1)
        assert facts.by_class == {"dense": 3}
        assert shared_programs(store, ["one", "two"])[-1] == 3
        noise = {"n": 4, "median": 0.01, "p90": 0.04, "bias": 0.0}
        oracle = {"tasks": 1.0, "programs": 16.0, "top1": 0.9, "top5": 1.0}
        text = card("Title", store, [], {"one": {**noise, "oracle": oracle}}, "A remark.")
    assert text.startswith("# Title\n")
    assert "| `one` | 5 | 4 | 1 | 1 (1) |" in text
    assert "Valid on every platform of this store: 3 programs (" in text
    assert "| `one` | 4 | 1.0% | 4.0% | +0.0% | 0.900 | 1.000 | 1 tasks of 16 programs |" in text
    assert "A remark." in text and "CC BY 4.0" in text
    assert "1 `unknown`" in text, "the failed program has no origin"
    assert "Rows marked `test` are of 1 workloads, for judging only. 1 of them are in" in text


def test_a_dataset_is_published_with_its_card(collected: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    with Store.open(collected) as store:
        store.append(timed(decisions=(5, 1, 1), cache="rotated"))
        store.append(timed(decisions=(6, 1, 1), cache="hot"))
    text = CardText(remarks="Of two machines.")
    result = publish_dataset([collected], out, text, again=[collected])
    assert (result["added"], result["measurements"]) == (10, 10)
    assert sorted(path.suffix for path in out.iterdir() if "-" in path.name) == [".parquet"] * 3
    said = (out / "card.md").read_text()
    assert said.startswith("# mine\n") and "Of two machines." in said
    assert "| `one` | rotated (1), hot (1) | 4 | 0 |" in said
    assert "1 build_error" in said and "CC BY 4.0; the code" in said
    assert "| `two` | 3 | 0.0% | 0.0% | +0.0% |" in said, "measured again by itself"


def test_what_cannot_be_published_is_one_line(collected: Path, tmp_path: Path) -> None:
    Store.open(tmp_path / "empty", create=True)
    with pytest.raises(StoreError, match=r"made of measurements, but .*empty has none"):
        publish_dataset([tmp_path / "empty"], tmp_path / "out", CardText())
    assert not (tmp_path / "out").exists()
    with pytest.raises(StoreError, match="does not exist"):
        publish_dataset([collected], tmp_path / "out", CardText(), again=[tmp_path / "no"])
    assert not (tmp_path / "out").exists()
    with pytest.raises(StoreError, match=r"a platform of .*, but .*empty has none"):
        publish_dataset([collected], tmp_path / "out", CardText(), again=[tmp_path / "empty"])


def test_the_nearest_training_task_is_of_the_same_class() -> None:
    task = listed(1, 56, 56, 64, split="test")
    near, far = listed(1, 48, 48, 64), listed(1, 14, 14, 512)
    found = nearest_train(task, [far, near, listed(1, 56, 56, 64, operator="pool")])
    assert found is not None
    assert found[0] is near
    assert found[1] == pytest.approx(2 * 0.2224, abs=1e-3)
    assert nearest_train(listed(8, operator="dense"), [near]) is None


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_shipped_data_is_sound_and_marks_every_test_row(folder: Path) -> None:
    test = {t.workload.id for t in read_tasks(DATA / "tasks.parquet") if t.split == "test"}
    with Store.open(folder) as store:
        assert verify(store)["problems"] == []
        rows = store.table(["workload_id", "split"]).to_pylist()
        assert rows
    assert all((row["workload_id"] in test) == (row["split"] == "test") for row in rows)
    assert (DATA / f"{folder.name}.md").exists()
