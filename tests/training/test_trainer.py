from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.trunk import TrunkConfig
from tensorese.training.recipe import judge_model

from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.tlp import TLPConfig
from tensorese.training.checkpoint import CheckpointError
from tensorese.training.distributed import launched
from tensorese.training.groups import GroupConfig
from tensorese.training.stacked import ManyTrainer
from tensorese.training.trainer import (
    Labels,
    TrainConfig,
    Trainer,
    learning_rate,
    total_loss,
)

pytestmark = pytest.mark.null

CONFIG = TrainConfig(epochs=4, groups=GroupConfig(size=16, per_batch=4), lr=3e-3, average=0.9)


def _build(toy: ProgramSet, seed: int = 0) -> MTLTLP:
    torch.manual_seed(seed)
    trunk = TrunkConfig(width=16, heads=2)
    return MTLTLP(TLPConfig(trunk=trunk, spec=toy.spec()), toy.platforms)


def _trainer(toy: ProgramSet, config: TrainConfig = CONFIG, **more: Any) -> Trainer:
    model = _build(toy)
    encoded = encode_programs(toy, Encoder(model.config.spec))
    return Trainer(model, toy, encoded, train_tasks=range(4), config=config, **more)


class _Killed(Exception):
    pass


def _kill_after(epoch: int) -> Any:
    def progress(entry: dict[str, Any]) -> None:
        if entry["epoch"] == epoch + 1:
            raise _Killed  # before this epoch's checkpoint is written

    return progress


def test_resume_after_a_kill_is_exact(toy: ProgramSet, tmp_path: Path) -> None:
    whole = _trainer(toy).fit()
    state = tmp_path / "state.safetensors"
    with pytest.raises(_Killed):
        _trainer(toy).fit(resume_from=state, progress=_kill_after(2))
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
    before = trainer.loss(batch).item()
    model = trainer.fit()
    assert trainer.loss(batch).item() < 0.6 * before
    found = judge_model(model, trainer.batch, toy, "fast", [4, 5])
    assert found["pairwise"] > 0.7
    assert found["top1"] > found["random_top1"] + 0.1


def test_early_stop_keeps_the_best(toy: ProgramSet) -> None:
    values = iter([0.5, 0.9, 0.1, 0.1, 0.1])
    config = replace(CONFIG, epochs=5, patience=2)
    trainer = _trainer(toy, config, validate=lambda *_: {"top1": next(values)})
    trainer.fit()
    assert len(trainer.history) == 4
    assert trainer.best is not None and trainer.best[0] == 0.9
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, trainer.best[2][name])


def test_rate_rises_then_falls() -> None:
    rates = [learning_rate(CONFIG, step, 100) for step in range(100)]
    assert rates[0] < rates[4] == max(rates)
    assert rates[-1] < 0.01 * max(rates)


def test_stacked_training_is_training(toy: ProgramSet) -> None:
    """Without dropout a stacked model takes the same steps as one alone."""

    def build(seed: int) -> MTLTLP:
        torch.manual_seed(seed)
        trunk = TrunkConfig(width=16, heads=2, dropout=0.0, noise=0.0)
        return MTLTLP(TLPConfig(trunk=trunk, spec=spec), toy.platforms)

    # Physical features that are alike in all toy programs have gradients of rounding errors.
    spec = toy.spec(physics=False)
    encoded = encode_programs(toy, Encoder(spec))
    config = replace(CONFIG, epochs=2)
    many = ManyTrainer(build, encoded, [(toy, range(4), 0), (toy, range(3), 7)], config, "cpu")
    many.fit()
    alone = Trainer(build(0), toy, encoded, train_tasks=range(4), config=config)
    assert many.per_epoch == alone.groups.per_epoch
    model = alone.fit()
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.data, many.weights(0)[name], rtol=2e-3, atol=2e-4)


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
