"""Several models of one architecture trained at once: folds and seeds as one batch of models.

The models are tiny; one after another they leave a GPU idle. Stacked with `vmap`, fifteen cost
little more than one. Same loss, schedule and running mean as `Trainer`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from tensorese.features.programs import Encoded, ProgramSet
from tensorese.models.network import TorchNetwork, as_batch
from tensorese.training.groups import Groups
from tensorese.training.head_coupling import head_groups, pull
from tensorese.training.trainer import (
    Labels,
    TrainConfig,
    learning_rate,
    make_labels,
    total_loss,
)


class StackedTrainer:
    """`runs` lists (program set, train tasks, seed); the sets differ in labels only."""

    def __init__(
        self,
        build: Callable[[int], TorchNetwork],
        encoded: Encoded,
        runs: Sequence[tuple[ProgramSet, Sequence[int], int]],
        config: TrainConfig,
        device: str | torch.device,
        start: Sequence[dict[str, Tensor]] | None = None,
        graph: bool = True,
    ) -> None:
        self.config = config
        self.graph = graph
        self.device = torch.device(device)
        self.bf16 = self.device.type == "cuda" if config.bf16 is None else config.bf16
        models = [build(seed).to(self.device) for _, _, seed in runs]
        if start is not None:
            for model, state in zip(models, start, strict=True):
                model.load_state_dict(state, strict=False)
        self.skeleton = copy.deepcopy(models[0]).to("meta")
        self.params: dict[str, Tensor] = stack_module_state(models)[0]
        self.batch = as_batch(encoded).to(self.device)
        labels = [make_labels(programs, tasks) for programs, tasks, _ in runs]
        self.labels = _stack(labels, self.device)
        self.groups = [
            Groups(programs, tasks, config.groups, seed=seed, failed=config.failed_weight > 0)
            for programs, tasks, seed in runs
        ]
        self.per_epoch = max(groups.per_epoch for groups in self.groups)
        self.steps = config.epochs * self.per_epoch
        self.heads = head_groups(self.params) if config.together else []
        self.average = {k: v.detach().clone() for k, v in self.params.items()}
        graphed = self.device.type == "cuda"
        # The rate and the share of the running mean are tensors: a captured step reads them.
        self.rate = torch.tensor(config.lr, device=self.device)
        self.share = torch.tensor(1.0, device=self.device)
        self.losses = torch.zeros(len(models), device=self.device)
        self.optimizer = torch.optim.AdamW(
            list(self.params.values()),
            lr=self.rate if graphed else config.lr,
            weight_decay=config.weight_decay,
            fused=graphed,
            capturable=graphed,
        )
        self._graph: torch.cuda.CUDAGraph | None = None
        self._static: Tensor | None = None

    def fit(self, after: Callable[[int, Tensor], None] | None = None) -> None:
        """`after` is called with the number of epochs that are done and each model's mean loss."""
        torch.manual_seed(self.config.seed)
        step = 0
        for epoch in range(self.config.epochs):
            drawn = [_stretch(groups.epoch(epoch), self.per_epoch) for groups in self.groups]
            batches = torch.from_numpy(np.stack(drawn, axis=1)).to(self.device)  # [B, M, G, N]
            if step == 0 and self.graph and self.device.type == "cuda":
                self._capture(batches[0])
            self.losses.zero_()
            for index_MGN in batches:
                self._advance(index_MGN, step)
                step += 1
            if after is not None:
                after(epoch + 1, self.losses / len(batches))

    def _capture(self, index_MGN: Tensor) -> None:
        """Hundreds of small kernels a step: launched one by one they cost more than they do."""
        self._static = index_MGN.clone()
        self.rate.zero_()
        self.share.zero_()
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):  # at rate 0: weights stay as they are
                self._work(self._static)
        torch.cuda.current_stream().wait_stream(aside)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with suppress(RuntimeError):  # not captured: steps run one by one
            with torch.cuda.graph(graph):
                self._work(self._static)
            self._graph = graph

    def _advance(self, index_MGN: Tensor, step: int) -> None:
        rate = learning_rate(self.config, step, self.steps)
        self.rate.fill_(rate)
        self.share.fill_(1.0 - min(self.config.average, (step + 1) / (step + 11.0)))
        if self._graph is not None and self._static is not None:
            self._static.copy_(index_MGN)
            self._graph.replay()
            return
        if self.device.type != "cuda":
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        self._work(index_MGN)

    def _work(self, index_MGN: Tensor) -> None:
        """One step of every model, with nothing that waits for the device."""
        self.optimizer.zero_grad(set_to_none=True)
        loss_M = vmap(self._loss, randomness="different")(
            self.params, index_MGN, self.labels.label, self.labels.valid, self.labels.failed
        )
        loss_M.sum().backward()  # type: ignore[no-untyped-call]
        self.losses += loss_M.detach()
        self._clip()
        self.optimizer.step()
        pull(self.heads, self.rate * self.config.together)
        with torch.no_grad():
            averages = list(self.average.values())
            moved = torch._foreach_sub([p.detach() for p in self.params.values()], averages)
            torch._foreach_mul_(moved, self.share)
            torch._foreach_add_(averages, moved)

    def _loss(
        self, params: dict[str, Tensor], index: Tensor, label: Tensor, valid: Tensor, failed: Tensor
    ) -> Tensor:
        flat = index.clamp(min=0).flatten()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            outputs = functional_call(self.skeleton, params, (self.batch.select(flat),))
        picked = Labels(label=label, valid=valid, failed=failed).pick(flat, index.shape)
        return total_loss(
            outputs.float().unflatten(0, index.shape), picked, index >= 0, self.config
        )

    def _clip(self) -> None:
        grads = [p.grad for p in self.params.values() if p.grad is not None]
        square = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0)
        factor = (self.config.clip / (square.sqrt() + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(factor.view(-1, *[1] * (grad.dim() - 1)))

    def weights(self, model: int) -> dict[str, Tensor]:
        """The (averaged) weights of one of the models."""
        source = self.average if self.config.average else self.params
        return {name: tensor[model].detach().clone() for name, tensor in source.items()}


def _stretch(batches: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Repeats the first batches of a shorter epoch: stacked models step together."""
    return np.resize(batches, (count, *batches.shape[1:]))


def _stack(labels: Sequence[Labels], device: torch.device) -> Labels:
    return Labels(
        label=torch.stack([x.label for x in labels]).to(device),
        valid=torch.stack([x.valid for x in labels]).to(device),
        failed=torch.stack([x.failed for x in labels]).to(device),
    )


def keep_labels(
    programs: ProgramSet, platform: str, tasks: Sequence[int], count: int, *, seed: int
) -> ProgramSet:
    """Only `count` valid labels of a platform's training tasks stay, drawn at random."""
    head = programs.head(platform)
    valid = programs.valid(head)
    valid = valid[np.isin(programs.task[valid], np.asarray(tasks))]
    rng = np.random.default_rng(seed)
    drawn = rng.choice(valid, min(count, len(valid)), replace=False)
    latency, failed = programs.latency.copy(), programs.failed.copy()
    latency[:, head] = np.nan
    latency[drawn, head] = programs.latency[drawn, head]
    failed[:, head] = False
    return replace(programs, latency=latency, failed=failed)
