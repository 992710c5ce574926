"""The training loop: task-grouped batches, ranking loss, cosine schedule, exact resume.

Everything random depends on (seed, epoch): what is saved after an epoch is enough to go on as
if nothing had happened.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from tensorese.features.programs import DataError, Encoded, ProgramSet
from tensorese.models.network import Batch, TorchNetwork, as_batch
from tensorese.training import losses
from tensorese.training.checkpoint import load_checkpoint, save_checkpoint
from tensorese.training.groups import GroupConfig, Groups
from tensorese.training.head_coupling import head_groups, pull
from tensorese.training.labels import task_best

Loss: TypeAlias = Literal["rank", "mse", "both", "none"]
"""`none` leaves what the weights below ask for."""
Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    epochs: int = 16
    groups: GroupConfig = field(default_factory=GroupConfig)
    loss: Loss = "both"
    mse_weight: float = 10.0
    """Weight of the squared error beside the ranking loss."""
    octave_weight: float = 0.0
    """The same of the error on a logarithmic scale; 0 leaves it out."""
    centred_weight: float = 0.0
    """The same of that error less its mean over a task's programs."""
    regret_weight: float = 10.0
    """Weight of the expected regret of a pick by softmax."""
    regret5_weight: float = 0.0
    """The same of the best of five picks: it pays to hedge."""
    rank_top: int = 0
    """Places that count in the ranking loss; 0: all."""
    label_power: float = 1.0
    """Labels are (task minimum / latency) to this power: above 1 only the near-best matter."""
    failed_weight: float = 0.1
    """Weight of the class "fails"; 0 trains on valid programs only."""
    lr: float = 1e-3
    weight_decay: float = 1e-2
    together: float = 0.0
    """How strongly the heads are pulled to their mean, in learning rates a step."""
    clip: float = 1.0
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: float = 0.05
    """Share of the steps with a rising learning rate; a cosine follows. None if constant."""
    average: float = 0.995
    """Weights used are a running mean with this memory per step; 0 uses the last ones."""
    bf16: bool | None = None
    """Mixed precision; None: on CUDA only."""
    seed: int = 0
    patience: int = 0
    """Stop after this many epochs without a better validation top-1, and keep the best epoch's
    weights; 0 never stops early and keeps the last."""


@dataclass(kw_only=True, eq=False)
class Labels:
    """Labels on the device, `[n, platforms]`; `label` is task minimum / latency."""

    label: Tensor
    valid: Tensor
    failed: Tensor

    def pick(self, flat: Tensor, shape: torch.Size) -> Labels:
        return Labels(**{k: v[flat].unflatten(0, shape) for k, v in vars(self).items()})

    def to(self, device: torch.device) -> Labels:
        return Labels(**{k: v.to(device) for k, v in vars(self).items()})


def make_labels(programs: ProgramSet, tasks: Sequence[int]) -> Labels:
    """Labels of the given tasks only: the others' minima are never looked at."""
    allowed = np.isin(programs.task, np.asarray(tasks))[:, None]
    valid = np.isfinite(programs.latency) & allowed
    best = task_best(programs, tasks)[programs.task]
    share = np.divide(best, programs.latency, out=np.zeros_like(best), where=valid)
    return Labels(
        label=torch.from_numpy(share.astype(np.float32)),
        valid=torch.from_numpy(valid),
        failed=torch.from_numpy(programs.failed & allowed),
    )


def total_loss(outputs: Tensor, labels: Labels, present_GN: Tensor, config: TrainConfig) -> Tensor:
    """Sum over platforms and members of `[G, N, P, 2 * members]`; no labels, nothing added."""
    scores, logits = (outputs[..., k::2].permute(2, 3, 0, 1) for k in (0, 1))  # [P, M, G, N]
    label, valid, failed = (
        x.permute(2, 0, 1)[:, None] for x in (labels.label, labels.valid, labels.failed)
    )
    valid, failed = valid & present_GN, failed & present_GN
    if config.label_power != 1.0:
        label = label**config.label_power
    total = outputs.sum() * 0.0
    if config.loss in ("rank", "both"):
        total = total + losses.lambda_rank(scores, label, valid, config.rank_top)
    if config.loss in ("mse", "both"):
        total = total + config.mse_weight * losses.squared_error(scores, label, valid)
    if config.octave_weight:
        total = total + config.octave_weight * losses.squared_octaves(scores, label, valid)
    if config.centred_weight:
        total = total + config.centred_weight * losses.centred_octaves(scores, label, valid)
    if config.regret_weight:
        regret = losses.expected_regret(scores, label, valid)
        total = total + config.regret_weight * regret
    if config.regret5_weight:
        regret = losses.expected_regret(scores, label, valid, picks=5)
        total = total + config.regret5_weight * regret
    if config.failed_weight:
        fails = losses.failure_loss(logits, failed, valid | failed)
        total = total + config.failed_weight * fails
    return total


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """Rises in a line, falls in a cosine; or stays."""
    if config.schedule == "constant":
        return config.lr
    warm = max(1, round(config.warmup * steps))
    if step < warm:
        return config.lr * (step + 1) / warm
    done = (step - warm) / max(1, steps - warm)
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * done))


class Trainer:
    """`fit` runs to the end, or on from `resume_from` if that file exists."""

    def __init__(
        self,
        model: TorchNetwork,
        programs: ProgramSet,
        encoded: Encoded | Batch,
        *,
        train_tasks: Sequence[int],
        config: TrainConfig,
        device: str | torch.device = "cpu",
        validate: Callable[[TorchNetwork, Any], dict[str, float]] | None = None,
        watched: Sequence[int] = (),
        wrap: Callable[[nn.Module], nn.Module] | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.config = config
        self.device = torch.device(device)
        self.model = model.to(self.device)
        self.wrapped = wrap(self.model) if wrap else self.model
        self.rank, self.world = rank, world
        batch: Batch = as_batch(encoded) if isinstance(encoded, Encoded) else encoded
        self.batch = batch.to(self.device)
        self.labels, self.groups = self._to_learn(programs, train_tasks)
        if not self.groups.records:
            raise DataError(
                "training needs a task with at least two valid records, but got none; "
                "add records of programs that ran"
            )
        self.validate = validate
        self.watched = self._to_learn(programs, watched)
        """Tasks that are not learnt from: their loss is in the history."""
        self.steps = config.epochs * self.groups.per_epoch
        self.step = 0
        self.bf16 = self.device.type == "cuda" if config.bf16 is None else config.bf16
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=config.lr,
            weight_decay=config.weight_decay,
            fused=self.device.type == "cuda",
        )
        self.heads = head_groups(dict(self.model.named_parameters())) if config.together else []
        self.average = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        self.history: list[dict[str, Any]] = []
        self.best: tuple[float, int, dict[str, Tensor]] | None = None

    def _to_learn(self, programs: ProgramSet, tasks: Sequence[int]) -> tuple[Labels, Groups]:
        failed = self.config.failed_weight > 0
        groups = Groups(programs, tasks, self.config.groups, seed=self.config.seed, failed=failed)
        return make_labels(programs, tasks).to(self.device), groups

    @property
    def network(self) -> nn.Module:
        return self.model

    def identity(self) -> dict[str, Any]:
        return {
            "train": asdict(self.config),
            "model": asdict(self.model.config),
            "platforms": list(self.model.platforms),
            "steps": self.steps,
        }

    # ---- one step

    def loss(self, index_GN: Tensor, labels: Labels | None = None) -> Tensor:
        """The loss of one batch of groups; every platform's labels of its programs count."""
        network = self.wrapped if labels is None else self.model
        present = index_GN >= 0
        flat = index_GN.clamp(min=0).flatten()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            outputs = network(self.batch.select(flat).compact())
        outputs = outputs.float().unflatten(0, index_GN.shape)
        picked = (labels or self.labels).pick(flat, index_GN.shape)
        return total_loss(outputs, picked, present, self.config)

    def watched_loss(self) -> float:
        """Of tasks that are not learnt from, with the weights as they are."""
        labels, groups = self.watched
        self.model.eval()
        with torch.inference_mode():
            batches = torch.from_numpy(groups.epoch(0)).to(self.device)
            return float(torch.stack([self.loss(index, labels) for index in batches]).mean())

    def _advance(self, index_GN: Tensor) -> Tensor:
        rate = learning_rate(self.config, self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.loss(index_GN)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        pull(self.heads, rate * self.config.together)
        self.step += 1
        if self.config.average:
            # Early on a long memory would hold the random start.
            memory = min(self.config.average, self.step / (self.step + 10.0))
            with torch.no_grad():
                torch._foreach_lerp_(
                    list(self.average.values()),
                    [p.detach() for p in self.model.parameters()],
                    1.0 - memory,
                )
        return loss.detach()

    # ---- the loop

    def fit(
        self, *, resume_from: Path | None = None, progress: Progress | None = None
    ) -> TorchNetwork:
        """Trains, then leaves the averaged (or best validated) weights in the model."""
        first = self._resume(resume_from)
        start = time.monotonic()
        for epoch in range(first, self.config.epochs):
            entry = self._epoch(epoch)
            done = epoch + 1 - first
            left = (time.monotonic() - start) / done * (self.config.epochs - epoch - 1)
            self.history.append(entry)
            if progress:
                progress({**entry, "seconds_left": left})
            if resume_from is not None and self.rank == 0:
                save_checkpoint(resume_from, self, epoch + 1)
            if self._should_stop(entry, epoch):
                break
        self._settle()
        return self.model

    def _epoch(self, epoch: int) -> dict[str, Any]:
        torch.manual_seed((self.config.seed * 1_000_003 + epoch) * 97 + self.rank)
        self.model.train()
        batches = torch.from_numpy(self.groups.epoch(epoch)[:, self.rank :: self.world])
        batches = batches.to(self.device)
        total = torch.zeros((), device=self.device)
        for index_GN in batches:
            total += self._advance(index_GN)
        entry: dict[str, Any] = {"epoch": epoch + 1, "steps": self.step}
        entry["loss"] = float(total) / len(batches)
        with self._averaged():
            if self.watched[1].records:
                entry["validation_loss"] = self.watched_loss()
            if self.validate is not None:
                entry.update(self.validate(self.model, self.batch))
        return entry

    def _should_stop(self, entry: dict[str, Any], epoch: int) -> bool:
        if self.validate is None or not self.config.patience:
            return False
        value = float(entry["top1"])
        if self.best is None or value > self.best[0]:
            with self._averaged():
                state = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
            self.best = (value, epoch, state)
        return epoch - self.best[1] >= self.config.patience

    def _settle(self) -> None:
        if self.best is not None:
            self.model.load_state_dict(self.best[2])
        elif self.config.average:
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    parameter.copy_(self.average[name])

    def _averaged(self) -> _Swap:
        return _Swap(self.model, self.average if self.config.average else {})

    def _resume(self, path: Path | None) -> int:
        if path is None or not path.exists():
            return 0
        return load_checkpoint(path, self)


class _Swap:
    """Uses the averaged weights inside the block, then gives the model its own back."""

    def __init__(self, model: nn.Module, average: dict[str, Tensor]) -> None:
        self.model, self.average = model, average

    def _exchange(self) -> None:
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if name in self.average:
                    current = parameter.detach().clone()
                    parameter.copy_(self.average[name])
                    self.average[name].copy_(current)

    def __enter__(self) -> None:
        self._exchange()

    def __exit__(self, *_: object) -> None:
        self._exchange()
