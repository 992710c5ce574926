"""A new head learns a machine that its trunk has not seen, and says by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from models_support import trees_model

from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.metrics import TaskResult, mean_top_k
from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.base import Card, Model, ModelError, load_model, save_model
from tensorese.models.catalog import SHIPPED
from tensorese.models.ensemble import Ensemble, Member
from tensorese.models.physics_net import PhysicsNet
from tensorese.models.tlp import TLP, TLPConfig, TLPNetwork
from tensorese.models.trees import Forest, Trees, from_lightgbm
from tensorese.onboard import adapt as adapting
from tensorese.onboard.adapt import FOLDS, OnboardError, Start, Votes, adapt, labelled
from tensorese.training.fine_tune import NewLabels
from tensorese.training.groups import GroupConfig
from tensorese.training.labels import only, tree_labels
from tensorese.training.physics import FitJob, PhysicsFit, physics_set, train_physics
from tensorese.training.trainer import TrainConfig, Trainer
from training_support import cpu_programs, pairs_in_order

pytestmark = pytest.mark.null

OLD, NEW = "lake-1c", "lake-2c"
TINY = PhysicsFit(networks=2, steps=60, rows=256, lr=3e-3)
FEW_STEPS = {"head": replace(TINY, steps=20)}


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapting, "TREES", 20)


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> ProgramSet:
    torch.set_num_threads(1)
    return cpu_programs(tmp_path_factory.mktemp("lakes"), (OLD, NEW))


@pytest.fixture(scope="module")
def labels(lakes: ProgramSet) -> NewLabels:
    """What was measured on the new platform."""
    return NewLabels(only(lakes, NEW))


@pytest.fixture(scope="module")
def networks(lakes: ProgramSet) -> PhysicsNet:
    """They know the old platform and a copy of it."""
    twins = replace(
        only(lakes, OLD),
        platforms=(OLD, "copy"),
        latency=lakes.latency[:, [0, 0]],
        failed=lakes.failed[:, [0, 0]],
    )
    job = FitJob(programs=twins, tasks=tuple(range(12)))
    return train_physics(physics_set(lakes), [job], TINY)[0]


@pytest.fixture(scope="module")
def nearest(networks: PhysicsNet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("nearest"), networks, Card())


@pytest.fixture(scope="module")
def tlp(lakes: ProgramSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a user trains it, on the old platform."""
    torch.manual_seed(0)
    spec = lakes.spec(physics=False)
    network = TLPNetwork(TLPConfig(spec=spec, width=32), (OLD,))
    Trainer(
        network,
        only(lakes, OLD),
        encode_programs(lakes, Encoder(spec)),
        train_tasks=range(12),
        config=TrainConfig(epochs=12, groups=GroupConfig(size=32, per_batch=4), lr=3e-3),
    ).fit()
    return save_model(tmp_path_factory.mktemp("tlp"), TLP(network.eval()), Card())


def with_trees(networks: PhysicsNet, forests: dict[str, Forest], folder: Path) -> Path:
    trees = Trees(networks.needs.name, forests)
    model = Ensemble([Member(model=networks), Member(model=trees, votes=8)])
    return save_model(folder, model, Card())


def trees_of(model: Model) -> Trees | None:
    member = model.member("trees") if isinstance(model, Ensemble) else None
    if member is None:
        return None
    assert isinstance(member.model, Trees)
    return member.model


def test_it_starts_where_the_nearest_head_is(
    lakes: ProgramSet, networks: PhysicsNet, nearest: Path
) -> None:
    new = Start(nearest, "copy", NEW).model()
    assert new.platforms == (NEW,)
    rows = new.read_all(lakes)
    np.testing.assert_allclose(new.rank(rows, NEW), networks.rank(rows, "copy"), atol=1e-6)
    assert not np.allclose(new.rank(rows, NEW), networks.rank(rows, OLD), atol=1e-3)


def test_adapting_reports_held_out_tasks(
    labels: NewLabels, nearest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapting, "VARIANTS", {"head": FEW_STEPS["head"], "all": TINY})
    adapted = adapt(labels, NEW, nearest, OLD)
    assert adapted.model.platforms == (NEW,) and adapted.variant in ("head", "all")
    assert adapted.gain.tasks == 3
    assert 0 < adapted.gain.before[1] <= 1 and 0 < adapted.gain.after[1] <= 1
    assert "3 held-out tasks" in adapted.gain.lines()[0]
    start, tasks = Start(nearest, OLD, NEW).model(), range(12)
    before, after = (pairs_in_order(m, labels.programs, NEW, tasks) for m in (start, adapted.model))
    assert after > before
    scores = adapted.model.rank(adapted.model.read_all(labels.programs), NEW)
    judged = judge_scores(labels.programs, NEW, scores.astype(np.float64), tasks)
    assert mean_top_k(judged, 1) > 0.5


def test_a_shipped_ensemble_learns_a_platform(
    labels: NewLabels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapting, "VARIANTS", {"all": replace(TINY, steps=20)})
    monkeypatch.setattr(adapting, "FOLDS", 2)
    head = "emeraldrapids-2c"
    start = Start(SHIPPED / "mtl-cpu", head, NEW)
    assert start.votes.count > 0 and set(start.forests) == {"nearest"}
    adapted = adapt(labels, NEW, SHIPPED / "mtl-cpu", head)
    assert adapted.model.platforms == (NEW,) and adapted.model.needs == start.networks.needs
    before, after = (
        pairs_in_order(m, labels.programs, NEW, range(12)) for m in (start.model(), adapted.model)
    )
    assert after > before + 0.05


def test_a_users_tlp_learns_a_platform(
    labels: NewLabels, tlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapting, "VARIANTS", {"all": replace(TINY, steps=40)})
    monkeypatch.setattr(adapting, "FOLDS", 2)
    adapted = adapt(labels, NEW, tlp, OLD)
    assert isinstance(adapted.model, TLP) and adapted.model.platforms == (NEW,)
    assert str(adapted.votes) == "no trees"  # which read rows of hardware features
    before = pairs_in_order(Start(tlp, OLD, NEW).model(), labels.programs, NEW, range(12))
    assert pairs_in_order(adapted.model, labels.programs, NEW, range(12)) > before + 0.05
    # Kept in 16 bits, as onboarding keeps it.
    again = load_model(save_model(tmp_path / "kept", adapted.model, Card(), half=True))
    inputs = again.read_all(labels.programs)
    np.testing.assert_allclose(again.rank(inputs, NEW), adapted.model.rank(inputs, NEW), atol=0.02)


def test_trees_alone_cannot_learn_a_platform(labels: NewLabels, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "trees", trees_model((OLD,)), Card())
    with pytest.raises(ModelError, match="learnt by networks, but a model of kind trees") as error:
        adapt(labels, NEW, folder, OLD)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("says", ["the truth", "the opposite"])
def test_the_nearest_trees_come_along_if_they_help(
    labels: NewLabels,
    networks: PhysicsNet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    says: str,
) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    monkeypatch.setattr(adapting, "VARIANTS", FEW_STEPS)
    monkeypatch.setattr(adapting, "can_grow", lambda: False)
    index, share = tree_labels(labels.programs, range(12))
    taught = share if says == "the truth" else 1 - share
    settings = {"verbose": -1, "num_leaves": 63, "min_data_in_leaf": 2, "num_threads": 1}
    rows = lightgbm.Dataset(labels.physics.features[index], taught)
    forest = from_lightgbm(lightgbm.train(settings, rows, 40))
    folder = with_trees(networks, {"copy": forest}, tmp_path / "model")
    assert Start(folder, OLD, NEW).forests == {}
    start = Start(folder, "copy", NEW)
    assert start.votes == Votes(8) and set(start.forests) == {"nearest"}
    adapted = adapt(labels, NEW, folder, "copy")
    assert (trees_of(adapted.model) is not None) == (says == "the truth")
    assert adapted.model.platforms == (NEW,)


def test_trees_of_the_new_labels_are_taken_where_they_rank_better(
    labels: NewLabels, nearest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(adapting, "VARIANTS", FEW_STEPS)
    monkeypatch.setattr(adapting, "LEAST_LEAF", 2)
    tried = _noting(monkeypatch)
    adapted = adapt(labels, NEW, nearest, OLD)
    assert [len(marks) for marks in tried.values()] == [1 * FOLDS, 2 * FOLDS]
    assert next(iter(tried)) == 0  # this model came without any
    best = max(tried, key=lambda count: float(np.mean(tried[count])))
    assert best == 2 * adapting.TREES  # on two scales
    trees = trees_of(adapted.model)
    assert trees is not None and adapted.votes.whose == "own"
    assert len(trees.forests[NEW].roots) == best


def _noting(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[float]]:
    """How well models with each number of trees ranked the tasks left out."""
    tried: dict[int, list[float]] = {}
    judged = adapting._judged
    gain = adapting._gain

    def noted(
        programs: ProgramSet, platform: str, model: Model, tasks: Sequence[int]
    ) -> list[TaskResult]:
        results = judged(programs, platform, model, tasks)
        trees = trees_of(model)
        count = 0 if trees is None else len(trees.forests[platform].roots)
        mark = np.mean([r.ratio(1) + r.steady + r.pairwise for r in results])
        tried.setdefault(count, []).append(float(mark))
        return results

    def unnoted(*arguments: object) -> object:
        with monkeypatch.context() as quiet:
            quiet.setattr(adapting, "_judged", judged)
            return gain(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(adapting, "_judged", noted)
    monkeypatch.setattr(adapting, "_gain", unnoted)
    return tried


def test_the_nearest_trees_are_corrected_where_that_ranks_better(
    lakes: ProgramSet,
    labels: NewLabels,
    networks: PhysicsNet,
    nearest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(adapting, "VARIANTS", FEW_STEPS)
    monkeypatch.setattr(adapting, "LEAST_LEAF", 2)
    old = NewLabels(only(lakes, OLD))
    forest = adapting.grow(old, OLD, range(12), Start(nearest, OLD, OLD))["own"]
    folder = with_trees(networks, {OLD: forest}, tmp_path / "model")
    tried = _noting(monkeypatch)
    adapted = adapt(labels, NEW, folder, OLD)
    count = len(forest.roots)  # its own are as many; corrected ones come on top
    corrected = count + adapting.TREES
    assert set(tried) == {0, count, corrected}
    assert len(tried[count]) == 4 * FOLDS and len(tried[corrected]) == 2 * FOLDS
    best = max(tried, key=lambda trees: max(tried[trees]))
    assert best != 0 and trees_of(adapted.model) is not None


def test_without_lightgbm_no_tree_is_grown(
    labels: NewLabels, nearest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapting, "VARIANTS", FEW_STEPS)
    monkeypatch.setattr(adapting, "can_grow", lambda: False)
    adapted = adapt(labels, NEW, nearest, OLD)
    assert isinstance(adapted.model, PhysicsNet)
    assert str(adapted.votes) == "no trees"


def test_a_frozen_trunk_stays(labels: NewLabels, nearest: Path) -> None:
    start = Start(nearest, OLD, NEW)
    new = adapting._fit(labels, start, range(12), "head", 0, True).tensors(half=False)
    for name, tensor in start.networks.tensors(half=False).items():
        assert np.array_equal(tensor, new[name]) == ("heads" not in name), name


def test_too_few_tasks_are_refused(labels: NewLabels, nearest: Path) -> None:
    latency = labels.programs.latency.copy()
    latency[labels.programs.task >= 5] = np.nan
    few = replace(labels.programs, latency=latency)
    assert len(labelled(few, NEW)) == 5
    with pytest.raises(OnboardError, match="at least 8 tasks, but only 5"):
        adapt(NewLabels(few), NEW, nearest, OLD)
