from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.tlp import MTLTLP, TLPConfig, TLPNetwork
from tensorese.training.checkpoint import CheckpointError
from tensorese.training.distributed import launched
from tensorese.training.groups import GroupConfig
from tensorese.training.recipes.base import judge_model
from tensorese.training.trainer import (
    Labels,
    TrainConfig,
    Trainer,
    learning_rate,
    total_loss,
)
from training_support import Killed, kill_after

pytestmark = pytest.mark.null

CONFIG = TrainConfig(epochs=4, groups=GroupConfig(size=16, per_batch=4), lr=3e-3, average=0.9)


def _trainer(toy: ProgramSet, config: TrainConfig = CONFIG, **more: Any) -> Trainer:
    torch.manual_seed(0)
    spec = toy.spec()
    network = TLPNetwork(TLPConfig(spec=spec, width=16, heads=2), toy.platforms)
    encoded = encode_programs(toy, Encoder(spec))
    return Trainer(network, toy, encoded, train_tasks=range(4), config=config, **more)


def test_resume_after_a_kill_is_exact(toy: ProgramSet, tmp_path: Path) -> None:
    whole = _trainer(toy).fit()
    state = tmp_path / "state.safetensors"
    with pytest.raises(Killed):
        _trainer(toy).fit(resume_from=state, progress=kill_after(2))
    resumed = _trainer(toy)
    model = resumed.fit(resume_from=state)
    assert [entry["epoch"] for entry in resumed.history] == [1, 2, 3, 4]
    for one, two in zip(whole.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_foreign_checkpoint_is_refused(toy: ProgramSet, tmp_path: Path) -> None:
    state = tmp_path / "state.safetensors"
    _trainer(toy, replace(CONFIG, epochs=1)).fit(resume_from=state)
    with pytest.raises(CheckpointError, match="own settings"):
        _trainer(toy).fit(resume_from=state)
    state.write_bytes(b"\x80\x04rubbish")
    with pytest.raises(CheckpointError, match="is not"):
        _trainer(toy).fit(resume_from=state)


def test_training_learns_an_unseen_task(toy: ProgramSet) -> None:
    trainer = _trainer(toy, replace(CONFIG, epochs=30))
    batch = torch.from_numpy(trainer.groups.epoch(0)[0])
    trainer.model.eval()
    before = trainer.loss(batch).item()
    network = trainer.fit().eval()
    assert trainer.loss(batch).item() < 0.6 * before
    assert isinstance(network, TLPNetwork)
    judged = judge_model(MTLTLP(network), toy, "fast", [4, 5], trainer.batch)
    assert judged["pairwise"] > 0.7
    assert judged["top1"] > judged["random_top1"] + 0.1


def test_early_stop_keeps_the_best(toy: ProgramSet) -> None:
    values = iter([0.5, 0.9, 0.1, 0.1, 0.1])
    config = replace(CONFIG, epochs=5, patience=2)
    trainer = _trainer(toy, config, validate=lambda *_: {"top1": next(values)})
    trainer.fit()
    assert len(trainer.history) == 4
    assert trainer.best is not None and trainer.best[0] == 0.9
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, trainer.best[2][name])


def test_the_loss_of_watched_tasks_is_written_down(toy: ProgramSet) -> None:
    """It is of their own labels, and training does not feel it."""
    trainer = _trainer(toy, replace(CONFIG, epochs=2), watched=(4, 5))
    trainer.fit()
    said = [entry["validation_loss"] for entry in trainer.history]
    other = _trainer(toy, CONFIG)
    other.model.load_state_dict(trainer.model.state_dict())
    labels, groups = other._to_learn(toy, (4, 5))
    other.model.eval()
    losses = [other.loss(torch.from_numpy(i), labels).item() for i in groups.epoch(0)]
    assert said[-1] == pytest.approx(sum(losses) / len(losses), rel=1e-4) and said[0] != said[1]
    assert said[-1] != pytest.approx(trainer.history[-1]["loss"], rel=0.01)
    for one, two in zip(
        _trainer(toy, replace(CONFIG, epochs=2)).fit().parameters(),
        trainer.model.parameters(),
        strict=True,
    ):
        assert torch.equal(one, two)  # watching changes nothing


def test_a_constant_rate_stays() -> None:
    config = replace(CONFIG, schedule="constant")
    assert {learning_rate(config, step, 100) for step in range(100)} == {CONFIG.lr}


def test_rate_rises_then_falls() -> None:
    rates = [learning_rate(CONFIG, step, 100) for step in range(100)]
    assert rates[0] < rates[4] == max(rates)
    assert rates[-1] < 0.01 * max(rates)


def _train_in_process(rank: int, port: int, toy: ProgramSet, queue: Any) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    with launched() as place:
        config = replace(CONFIG, epochs=1)
        trainer = _trainer(toy, config, wrap=place.wrap, rank=place.rank, world=place.world)
        model = trainer.fit()
        queue.put((place.rank, trainer.step, float(sum(p.sum() for p in model.parameters()))))


def test_two_processes_agree(toy: ProgramSet, unused_port: int) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [
        context.Process(target=_train_in_process, args=(rank, unused_port, toy, queue))
        for rank in range(2)
    ]
    for worker in workers:
        worker.start()
    found = sorted(queue.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join(30)
    assert [rank for rank, _, _ in found] == [0, 1]
    assert found[0][1:] == found[1][1:]


def test_loss_settings_reach_the_loss() -> None:
    torch.manual_seed(0)
    outputs, present = torch.randn(2, 6, 1, 4), torch.ones(2, 6).bool()
    label = torch.rand(2, 6, 1)
    known = {"valid": torch.ones(2, 6, 1).bool(), "failed": torch.zeros(2, 6, 1).bool()}

    def loss(power: float = 1.0, **settings: Any) -> float:
        config = replace(CONFIG, **settings)
        return total_loss(outputs, Labels(label=label**power, **known), present, config).item()

    assert loss(label_power=2.0) == pytest.approx(loss(power=2.0), rel=1e-5)
    for change in ({"regret5_weight": 5.0}, {"rank_top": 2}, {"mse_weight": 0.0}):
        assert abs(loss(**change) - loss()) > 1e-3
