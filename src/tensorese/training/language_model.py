"""Teaching a TLM: which steps it takes, in which batches, with which loss.

A batch holds all sketches of a few tasks and some sentences of each. Losses are of the answers
alone; prompts are read, not predicted. Which sketch holds the fastest programs is learnt beside.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensorese.arrays import Floats64, Ints
from tensorese.features.programs import DataError
from tensorese.language.sentence import FAILED, UNKNOWN
from tensorese.models.tlm import FASTEST, Dialogue, Prompts, TLMNetwork, log_likelihood
from tensorese.training.checkpoint import load_checkpoint, save_checkpoint
from tensorese.training.sentence_data import Sentences
from tensorese.training.trainer import Progress

Stage = Literal["pretrain", "best", "speed", "preference"]
_EPOCH = 100  # steps between two checkpoints


@dataclass(frozen=True, kw_only=True)
class LanguageConfig:
    stage: Stage = "speed"
    """`pretrain`: any legal program. `best`: the best of each task and sketch, as published.
    `speed`: all programs, their speed told beforehand. `preference`: pairs, the faster one is to be
    likelier than it was under the model so far (DPO)."""
    steps: int = 3000
    tasks: int = 16
    """In a batch, with all their sketches."""
    rows: int = 12
    """Sentences of a sketch in a batch."""
    lr: float = 1e-3
    weight_decay: float = 1e-2
    clip: float = 1.0
    warmup: float = 0.03
    """Share of the steps with a rising learning rate; a cosine follows."""
    average: float = 0.998
    """Memory of the running mean of the weights, a step."""
    untold: float = 0.15
    """Share of the sentences whose speed is not told."""
    slow: float = 0.25
    """Weight of the slowest class among the sentences that are drawn; the fastest has 1."""
    sketches: float = 0.2
    """Weight of the loss of choosing a sketch."""
    beta: float = 0.1
    """Of preferences: how far the model may move from where it started."""
    gap: float = 1.5
    """Of preferences: how much faster the better program must be."""
    bf16: bool | None = None
    """Mixed precision; None: on CUDA only."""
    seed: int = 0


class LanguageTrainer:
    """`fit` runs to the end, or on from a checkpoint; the model then has the averaged weights."""

    def __init__(
        self,
        model: TLMNetwork,
        sentences: Sentences,
        config: LanguageConfig,
        *,
        device: str = "cpu",
        wrap: Callable[[nn.Module], nn.Module] | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.config, self.device = config, torch.device(device)
        self.model = model.to(self.device)
        self.rank, self.world = rank, world
        self.loss_of = _Loss(self.model)
        self.wrapped = wrap(self.loss_of) if wrap else self.loss_of
        chosen = _chosen(sentences, config)
        weights = _weights(chosen.speed, 1.0 if config.stage == "pretrain" else config.slow)
        self.data = _OnDevice(chosen, weights, self.device)
        _check(self.data, config.stage)
        self.reference = copy.deepcopy(model).eval() if config.stage == "preference" else None
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.lr, weight_decay=config.weight_decay,
            betas=(0.9, 0.98), fused=self.device.type == "cuda",
        )  # fmt: skip
        self.bf16 = self.device.type == "cuda" if config.bf16 is None else config.bf16
        self.average = {k: v.detach().clone() for k, v in model.named_parameters()}
        self.steps, self.step = config.steps, 0
        self.history: list[dict[str, Any]] = []
        self.best: tuple[float, int, dict[str, Tensor]] | None = None

    @property
    def network(self) -> nn.Module:
        return self.model

    def identity(self) -> dict[str, Any]:
        return {
            "train": asdict(self.config),
            "model": asdict(self.model.config),
            "sentences": len(self.data.speed),
        }

    def fit(self, *, resume_from: Path | None = None, progress: Progress | None = None) -> None:
        first = 0
        if resume_from is not None and resume_from.exists():
            first = load_checkpoint(resume_from, self)
        start, epochs = time.monotonic(), math.ceil(self.steps / _EPOCH)
        for epoch in range(first, epochs):
            entry = self._epoch(epoch)
            each = (time.monotonic() - start) / (epoch + 1 - first)
            self.history.append(entry)
            if progress and self.rank == 0:
                progress({**entry, "seconds_left": each * (epochs - epoch - 1)})
            if resume_from is not None and self.rank == 0:
                save_checkpoint(resume_from, self, epoch + 1)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(self.average[name])
        self.model.eval()

    def _epoch(self, epoch: int) -> dict[str, Any]:
        """Everything random depends on the seed, the process and the epoch."""
        place = [self.config.seed, epoch, self.rank]
        rng = np.random.default_rng(place)
        torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1)[0]))
        self.model.train()
        total, count = torch.zeros((), device=self.device), 0
        while self.step < min(self.steps, (epoch + 1) * _EPOCH):
            total += self._advance(rng)
            count += 1
        return {"epoch": epoch + 1, "steps": self.step, "loss": float(total) / max(1, count)}

    def _advance(self, rng: np.random.Generator) -> Tensor:
        config, rate = self.config, learning_rate(self.config, self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self._preference(rng) if self.reference is not None else self._likelihood(rng)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        self.optimizer.step()
        self.step += 1
        memory = min(config.average, self.step / (self.step + 10.0))
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.average.values()),
                [p.detach() for p in self.model.parameters()],
                1.0 - memory,
            )
        return loss.detach()

    def _likelihood(self, rng: np.random.Generator) -> Tensor:
        config, data = self.config, self.data
        groups = rng.integers(len(data.groups), size=max(1, config.tasks // self.world))
        prompts = np.concatenate([data.groups[k] for k in groups])
        group = np.repeat(np.arange(len(groups)), [len(data.groups[k]) for k in groups])
        index_PR = data.draw(prompts, config.rows, rng)
        told = rng.random(index_PR.shape) >= config.untold
        only_untold = config.stage in ("pretrain", "best")
        speeds = np.where(told & (not only_untold), data.speed[index_PR], UNKNOWN)
        loss: Tensor = self.wrapped(
            data.prompts(prompts),
            data.tensor(speeds),
            data.dialogue(index_PR),
            data.counts_PC[data.tensor(prompts)],
            data.tensor(group),
            config.sketches,
        )
        return loss

    def _preference(self, rng: np.random.Generator) -> Tensor:
        """Pairs under one prompt: the first half of the rows are the faster ones."""
        assert self.reference is not None
        config, data = self.config, self.data
        prompts = rng.choice(data.paired, size=max(1, 3 * config.tasks // self.world))
        index_PR = data.pairs(prompts, max(1, config.rows // 2), config.gap, rng)
        words, dialogue = data.prompts(prompts), data.dialogue(index_PR)
        speeds = torch.full(index_PR.shape, FASTEST, device=self.device)
        with torch.no_grad():
            before = log_likelihood(self.reference, self.reference.read(words), speeds, dialogue)
        now = log_likelihood(self.model, self.model.read(words), speeds, dialogue)
        faster, slower = (now - before).chunk(2, dim=1)
        return -F.logsigmoid(config.beta * (faster - slower)).mean()


def learning_rate(config: LanguageConfig, step: int) -> float:
    warm = max(1, round(config.warmup * config.steps))
    if step < warm:
        return config.lr * (step + 1) / warm
    done = (step - warm) / max(1, config.steps - warm)
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * done))


class _Loss(nn.Module):
    """The loss of a batch; a module, so that several processes can share its gradients."""

    def __init__(self, network: TLMNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(
        self,
        prompts: Prompts,
        speeds_PR: Tensor,
        dialogue: Dialogue,
        counts_PC: Tensor,
        group_P: Tensor,
        sketches: float,
    ) -> Tensor:
        cache = self.network.read(prompts)
        logs = log_likelihood(self.network, cache, speeds_PR, dialogue)  # [P, R]
        said = -logs.sum() / dialogue.asked_PRS.sum().clamp(min=1)
        classes = torch.arange(counts_PC.shape[1], device=counts_PC.device)
        scores = self.network.judge(cache, classes.expand(len(counts_PC), -1)).float()  # [P, C]
        total = said + sketches * _choice_loss(scores, counts_PC, group_P)
        return total


def _choice_loss(scores_PC: Tensor, counts_PC: Tensor, group_P: Tensor) -> Tensor:
    """Of choosing a sketch as often as programs of a class are found in it, by task and class."""
    groups = int(group_P.max()) + 1
    shape = (groups, scores_PC.shape[1])
    index = group_P.unsqueeze(1).expand_as(scores_PC)
    highest = torch.full(shape, -math.inf, device=scores_PC.device)
    highest = highest.scatter_reduce(0, index, scores_PC.detach(), "amax")
    sums = torch.zeros(shape, device=scores_PC.device)
    sums = sums.scatter_add(0, index, (scores_PC - highest.gather(0, index)).exp())
    logs = scores_PC - highest.gather(0, index) - sums.gather(0, index).log()
    every = torch.zeros(shape, device=scores_PC.device).scatter_add(0, index, counts_PC)
    shares = counts_PC / every.gather(0, index).clamp(min=1.0)
    return -(shares * logs).sum() / (every > 0).sum()


class _OnDevice:
    """Sentences where they are learnt from, and draws of them."""

    def __init__(self, sentences: Sentences, weights: Floats64, device: torch.device) -> None:
        self.device, self.weights = device, weights
        self.speed, self.program = sentences.speed, sentences.program
        self.share = sentences.share
        longest = max(map(len, sentences.prompts))
        self.lengths = np.array([len(p) for p in sentences.prompts])
        words = np.zeros((len(sentences.prompts), longest, sentences.words.shape[2]), np.int16)
        for place, prompt in enumerate(sentences.prompts):
            words[place, : len(prompt)] = prompt
        self.prompt_words = self.tensor(words)
        self.words, self.answers, self.options = map(
            self.tensor, (sentences.words, sentences.answers, sentences.options)
        )
        self.asked = (sentences.options > 0).sum(1)
        self.counts_PC = self.tensor(sentences.counts().astype(np.float32))
        self._order = np.argsort(sentences.prompt, kind="stable")
        self._starts = np.searchsorted(
            sentences.prompt[self._order], np.arange(len(sentences.prompts) + 1)
        )
        filled = np.diff(self._starts) > 0
        groups = [group[filled[group]] for group in sentences.groups]
        self.groups = [group for group in groups if len(group)]
        self.paired = np.flatnonzero(np.diff(self._starts) > 1)

    def tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def members(self, prompt: int) -> Ints:
        members: Ints = self._order[self._starts[prompt] : self._starts[prompt + 1]]
        return members

    def draw(self, prompts: Ints, rows: int, rng: np.random.Generator) -> Ints:
        """`[P, R]` sentences of each prompt, the faster ones more often."""
        drawn = np.zeros((len(prompts), rows), np.int64)
        for place, prompt in enumerate(prompts):
            members = self.members(prompt)
            sums = self.weights[members].cumsum()
            drawn[place] = members[np.searchsorted(sums, rng.random(rows) * sums[-1], "right")]
        return drawn

    def pairs(self, prompts: Ints, n: int, gap: float, rng: np.random.Generator) -> Ints:
        """`[P, 2n]`: faster ones, then for each one that is `gap` times slower, or failed."""
        picked = np.zeros((len(prompts), 2 * n), np.int64)
        for place, prompt in enumerate(prompts):
            members = self.members(prompt)
            share = np.nan_to_num(self.share[members], nan=1e-3)
            order = np.argsort(-share)
            for k in range(n):
                fast = order[int(rng.random() ** 2 * len(order))]
                slower = np.flatnonzero(share * gap <= share[fast])
                slow = rng.choice(slower) if len(slower) else fast
                picked[place, k], picked[place, n + k] = members[fast], members[slow]
        return picked

    def prompts(self, prompts: Ints) -> Prompts:
        longest = int(self.lengths[prompts].max())
        words = self.prompt_words[self.tensor(prompts), :longest]
        lengths = self.tensor(self.lengths[prompts])
        real = torch.arange(longest, device=self.device) < lengths.unsqueeze(1)
        return Prompts(words_PTF=words, real_PT=real)

    def dialogue(self, index_PR: Ints) -> Dialogue:
        programs = self.program[index_PR]
        steps = max(1, int(self.asked[programs].max()))
        place = self.tensor(programs)
        return Dialogue(
            words_PRSF=self.words[place, :steps],
            answers_PRS=self.answers[place, :steps].long(),
            options_PRS=self.options[place, :steps].long(),
        )


def _check(data: _OnDevice, stage: Stage) -> None:
    if not data.groups:
        raise DataError(
            f"the stage {stage} learns from programs whose speed is known, but there are none; "
            "add records or a scored corpus"
        )
    if stage == "preference" and not len(data.paired):
        raise DataError(
            "pairs are of two programs of one sketch and task, but no sketch has two; add records, "
            "or leave preference at 0"
        )


def _chosen(sentences: Sentences, config: LanguageConfig) -> Sentences:
    """What a stage learns from."""
    if config.stage == "best":
        share = np.nan_to_num(sentences.share, nan=-1.0)
        best = np.full(len(sentences.prompts), -np.inf)
        np.maximum.at(best, sentences.prompt, share)
        return sentences.only((share >= best[sentences.prompt]) & (share > 0))
    if config.stage == "preference":
        return sentences.only(np.isfinite(sentences.share) | (sentences.speed == FAILED))
    return sentences


def _weights(speed: Ints, slow: float) -> Floats64:
    """How often a sentence is drawn: falls evenly from the fastest class to the slowest."""
    steps = np.minimum(speed, FAILED) / FAILED
    weights: Floats64 = slow**steps
    return weights
