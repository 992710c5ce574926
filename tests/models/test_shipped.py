"""What comes with the package: it loads, it is small, and it has never seen a test task."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tensorese.collect.tasklist import read_tasks
from tensorese.features.physics import feature_names
from tensorese.models.base import load_model, read_config
from tensorese.models.catalog import SHIPPED, choose, kept_models
from tensorese.models.ensemble import Ensemble
from tensorese.models.tlm import TLM
from tensorese.records.nouns import Platform
from tensorese.search.rankers.by_name import ranker_named
from tensorese.search.rankers.guided import AutoRanker

pytestmark = pytest.mark.null

ROOT = Path(__file__).parents[2]
EVERY = sorted(path.parent for path in SHIPPED.glob("*/config.json"))
WRITERS = [folder for folder in EVERY if read_config(folder)["kind"] == "tlm"]
FOLDERS = [folder for folder in EVERY if folder not in WRITERS]
every = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)


def test_which_there_are() -> None:
    heads = {kept.head for kept in kept_models([SHIPPED])}
    xeons = {"emeraldrapids-1c", "emeraldrapids-2c", "emeraldrapids-16c"}
    assert heads == {*xeons, "znver3-2c", "znver4-2c", "h200"}
    assert any(kept.heads == 5 for kept in kept_models([SHIPPED]))


def test_together_they_are_small() -> None:
    size = sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file())
    assert size < 28e6


@every
def test_each_says_what_it_is(folder: Path) -> None:
    """Networks on hardware features, and trees with most of the vote: not TLP."""
    model = load_model(folder)
    assert isinstance(model, Ensemble)
    assert [member.model.kind for member in model.members] == ["physics", "trees"]
    networks, votes = model.members[0].model.section()["networks"], model.members[1].votes
    assert 0.75 < votes / (votes + networks) < 0.9
    assert (folder / "card.md").read_text().startswith("# ensemble for")


@every
def test_each_loads_and_scores(folder: Path) -> None:
    model = load_model(folder)
    rng = np.random.default_rng(0)
    count = len(feature_names(model.needs.name.removeprefix("physics-")))
    features = rng.normal(2, 3, (50, count)).astype(np.float32)
    for platform in model.platforms:
        scores = model.rank(features, platform)
        assert np.isfinite(scores).all() and np.ptp(scores) > 0.01


@every
def test_no_test_task_was_trained_on(folder: Path) -> None:
    listed = read_tasks(ROOT / "data" / "tasks.parquet")
    test = {task.workload.id for task in listed if task.split == "test"}
    seen = set(load_model(folder).card.training_workloads)
    assert len(seen) > 50 and not seen & test


def test_probe_tasks_are_training_tasks() -> None:
    tasks = read_tasks(SHIPPED / "tasks.parquet")
    assert {task.kind for task in tasks} == {"llvm", "cuda"}
    assert all(task.split != "test" and task.workload.module for task in tasks)


def test_a_wheel_has_them() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    globs = settings["tool"]["setuptools"]["package-data"]["tensorese"]
    package = ROOT / "src" / "tensorese"
    found = {path for glob in globs for path in package.glob(glob)}
    wanted = {path for path in SHIPPED.rglob("*") if path.is_file()}
    assert wanted <= found


@pytest.mark.parametrize(
    ("name", "target", "folder"),
    [
        ("emeraldrapids-2c", {}, "emeraldrapids-2c"),
        ("emeraldrapids-4c", {}, "mtl-cpu"),
        ("znver4-2c", {}, "znver4-2c"),
        ("znver5-8c", {}, "mtl-cpu"),
        ("cuda-sm_90", {"kind": "cuda", "arch": "sm_90"}, "h200"),
    ],
)
def test_what_auto_takes(name: str, target: dict[str, str], folder: str) -> None:
    platform = Platform(name=name, target=json.dumps(target))
    choice = choose(platform, [SHIPPED])
    assert choice is not None and choice.folder.name == folder
    ranker, line = ranker_named("auto", platform, [SHIPPED])
    assert isinstance(ranker, AutoRanker) and folder in line
    assert "an ensemble on physics-" in line


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("znver5-16c", "znver4-2c"),  # the same line before the same number of cores
        ("skylake-avx512-16c", "emeraldrapids-16c"),
        ("emeraldrapids-8c", "emeraldrapids-16c"),
    ],
)
def test_which_head_is_nearest(name: str, head: str) -> None:
    choice = choose(Platform(name=name, target="{}"), [SHIPPED])
    assert choice is not None and choice.head == head


@pytest.mark.parametrize("folder", WRITERS, ids=lambda path: path.name)
def test_writers_are_small_never_saw_a_test_task_and_are_no_rankers_choice(folder: Path) -> None:
    model = load_model(folder)
    assert isinstance(model, TLM) and 1e6 < model.size() < 3e6
    assert sum(path.stat().st_size for path in folder.iterdir()) < 6e6
    test = {t.workload.id for t in read_tasks(ROOT / "data" / "tasks.parquet") if t.split == "test"}
    assert not test & set(model.card.training_workloads)
    for name, target in model.targets.items():
        platform = Platform(name=name, target=target)
        chosen = choose(platform, [SHIPPED])
        assert chosen is not None and chosen.folder not in WRITERS
        writer = choose(platform, [SHIPPED], kinds=("tlm",))
        assert writer is not None and writer.folder == folder


def test_cpus_and_gpus_have_a_writer() -> None:
    assert [folder.name for folder in WRITERS] == ["tlm-cpu", "tlm-cuda"]
