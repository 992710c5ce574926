"""TLM: a decoder-only transformer that writes the decisions of a schedule (OSDI'24).

A prompt (platform, computation, sketch) is read once and shared by all programs of its sketch;
after it each position asks one question (`language.sentence`) and gets one answer. What is asked
at a position is part of its input, beside what was answered before, so no token is spent on what
is fixed. The wished-for speed stands beside every question. Logits start from the logarithm of how
many completions each answer leaves: untrained, the model draws factorisations uniformly.

Shape legend: P prompts, T words of a prompt, R programs of a prompt, S positions, F fields,
D width, H heads, E width of a head, A answers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensorese.arrays import Floats32, Floats64, Ints
from tensorese.features.base import feature_set
from tensorese.features.sentences import SentenceSet
from tensorese.language.sentence import (
    ANSWERS,
    CHOICE,
    EXPONENT,
    FIELDS,
    LOCATION,
    N_SPEEDS,
    NUMBER,
    OPTION,
    PLACE,
    TILE,
    UNKNOWN,
    Grammar,
    Words,
    Written,
)
from tensorese.language.words import NUMBERS
from tensorese.models.base import Model, ModelError, Tensors, register
from tensorese.models.network import built

_PART, _PARTS, _CAP, _KIND = (list(FIELDS).index(n) for n in ("part", "parts", "cap", "kind"))
_SIZES = {"tiny": (160, 4, 5), "small": (384, 8, 6), "paper": (768, 12, 12)}
_CHUNK = 256  # programs of a prompt that are scored at once
_MASKED = -1e9
FASTEST = 0
"""The class of programs within 5 % of the best."""


@dataclass(frozen=True, kw_only=True)
class TLMConfig:
    width: int = 160
    layers: int = 4
    heads: int = 5
    dropout: float = 0.0
    counts: bool = True
    """Whether logits start from the number of completions that each answer leaves."""
    masked: bool = True
    """Whether an answer competes with those that its question allows, or with all there are."""
    atomic: bool = False
    """Whether parts of tiles are whole numbers; how many completions they leave is not known."""

    @property
    def answers(self) -> int:
        return ANSWERS + (len(NUMBERS) if self.atomic else 0)

    def __post_init__(self) -> None:
        if self.heads < 1 or self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(
                f"width must be heads times an even number, but got {self.width}, {self.heads}"
            )


def sized(size: str) -> TLMConfig:
    """`tiny`, `small`, or `paper` (GPT-2 small)."""
    if size not in _SIZES:
        raise ModelError(f"a TLM is one of {', '.join(_SIZES)}, but got {size!r}")
    width, layers, heads = _SIZES[size]
    return TLMConfig(width=width, layers=layers, heads=heads)


@dataclass(frozen=True, kw_only=True, eq=False)
class Prompts:
    words_PTF: Tensor
    real_PT: Tensor
    """False where a shorter prompt is padded."""

    @classmethod
    def stack(cls, prompts: Sequence[Words], device: torch.device | str = "cpu") -> Prompts:
        longest = max(map(len, prompts))
        words = np.zeros((len(prompts), longest, len(FIELDS)), np.int64)
        real = np.zeros((len(prompts), longest), np.bool_)
        for k, prompt in enumerate(prompts):
            words[k, : len(prompt)], real[k, : len(prompt)] = prompt, True
        return cls(
            words_PTF=torch.from_numpy(words).to(device), real_PT=torch.from_numpy(real).to(device)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Dialogue:
    """Questions in the order they were asked, and their answers, padded at the end."""

    words_PRSF: Tensor
    answers_PRS: Tensor
    options_PRS: Tensor
    """Answers that a question allows; 0 where there is no question."""

    @property
    def asked_PRS(self) -> Tensor:
        return self.options_PRS > 0


class _Layer(nn.Module):
    def __init__(self, config: TLMConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.first, self.second = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.grow = nn.Linear(config.width, 4 * config.width)
        self.shrink = nn.Linear(4 * config.width, config.width)
        self.drop = nn.Dropout(config.dropout)

    def split(self, x: Tensor, turn: _Rotation) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values `[..., H, E]`; positions turn the first two."""
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return _turned(q, turn), _turned(k, turn), v

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + self.drop(self.out(mixed.flatten(-2)))
        y: Tensor = x + self.drop(self.shrink(F.gelu(self.grow(self.second(x)))))
        return y


_Rotation: TypeAlias = tuple[Tensor, Tensor]
"""Cosine and sine of each position's angles `[..., 1, E/2]`, the same for all heads and layers."""


def _turned(x: Tensor, turn: _Rotation) -> Tensor:
    """Rotary positions."""
    a, b = x.float().chunk(2, -1)
    cos, sin = turn
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


@dataclass(eq=False)
class Cache:
    """Keys and values of prompts `[P, T, H, E]` and of what was answered so far `[P, R, S, H, E]`,
    by layer; `seen_PRS` is False where a program was not asked."""

    prompt: list[tuple[Tensor, Tensor]]
    real_PT: Tensor
    said: list[tuple[Tensor, Tensor]]
    seen_PRS: Tensor
    sketch_PD: Tensor
    """What the prompt comes to: the sketch is judged by it."""

    def take(self, index: Tensor) -> Cache:
        """Of some of the prompts."""
        return Cache(
            prompt=[(k[index], v[index]) for k, v in self.prompt],
            real_PT=self.real_PT[index],
            said=[(k[index], v[index]) for k, v in self.said],
            seen_PRS=self.seen_PRS[index],
            sketch_PD=self.sketch_PD[index],
        )


class TLMNetwork(nn.Module):
    def __init__(self, config: TLMConfig) -> None:
        super().__init__()
        self.config = config
        sizes = list(FIELDS.values())
        starts = torch.tensor([0, *sizes]).cumsum(0)
        self.starts: Tensor
        self.register_buffer("starts", starts[:-1], persistent=False)
        self.fields = nn.EmbeddingBag(sum(sizes), config.width, mode="sum")
        self.before = nn.EmbeddingBag(sum(sizes), config.width, mode="sum")
        """Of the question before, beside its answer."""
        self.answer = nn.Embedding(config.answers, config.width)
        self.speed = nn.Embedding(N_SPEEDS, config.width)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.layers))
        self.last = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.answers)
        self.sketch = nn.Sequential(
            nn.Linear(config.width, config.width), nn.GELU(), nn.Linear(config.width, 1)
        )
        self.wish = nn.Embedding(N_SPEEDS, config.width)
        for table in (self.fields, self.before, self.answer, self.speed, self.wish):
            nn.init.normal_(table.weight, std=0.02 * math.sqrt(4))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.counts_KCA: Tensor
        self.register_buffer("counts_KCA", _log_counts(config.answers), persistent=False)

    @property
    def _stack(self) -> Iterable[_Layer]:
        return cast(Iterable[_Layer], self.layers)

    # -- prompts -----------------------------------------------------------------------------

    def read(self, prompts: Prompts) -> Cache:
        """Prompts are read both ways: nothing in them is predicted."""
        x = self._words(self.fields, prompts.words_PTF)  # [P, T, D]
        turn = self._rotation(prompts.real_PT.cumsum(1) - 1)
        hide = torch.where(prompts.real_PT, 0.0, _MASKED)[:, None, None, :]  # [P, 1, 1, T]
        kept = []
        for layer in self._stack:
            q, k, v = layer.split(x, turn)
            kept.append((k, v))
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=hide.to(q.dtype))
            x = layer.finish(x, mixed.transpose(1, 2))
        real = prompts.real_PT.unsqueeze(-1)
        mean = (x * real).sum(1) / real.sum(1)
        return Cache(
            prompt=kept,
            real_PT=prompts.real_PT,
            said=[],
            seen_PRS=prompts.real_PT.new_zeros((len(x), 0, 0)),
            sketch_PD=mean,
        )

    def judge(self, cache: Cache, speeds_PR: Tensor) -> Tensor:
        """`[P, R]`: how well the sketch suits the wish; compares sketches of one task."""
        x: Tensor = self.sketch(cache.sketch_PD.unsqueeze(1) + self.wish(speeds_PR))
        return x.squeeze(-1)

    # -- answers -----------------------------------------------------------------------------

    def forward(self, cache: Cache, speeds_PR: Tensor, dialogue: Dialogue) -> Tensor:
        """`[P, R, S, A]` log-probabilities of the answers that each question allows."""
        x = self.states(cache, speeds_PR, dialogue)
        return self._answers(x, dialogue.words_PRSF, dialogue.options_PRS)

    def states(self, cache: Cache, speeds_PR: Tensor, dialogue: Dialogue) -> Tensor:
        """`[P, R, S, D]`: what is known at each question, before its answer."""
        asked = dialogue.asked_PRS
        x = self._inputs(speeds_PR, dialogue.words_PRSF, dialogue.answers_PRS)
        steps = x.shape[2]
        causal = torch.ones(steps, steps, dtype=torch.bool, device=x.device).tril()
        hide = torch.where(causal & asked.unsqueeze(-2), 0.0, _MASKED)  # [P, R, S, S]
        position = cache.real_PT.sum(1)[:, None, None] + asked.cumsum(2) - 1
        turn = self._rotation(position)
        for layer, prompt in zip(self._stack, cache.prompt, strict=True):
            q, k, v = layer.split(x, turn)
            x = layer.finish(x, _attend(q, (k, v), hide, prompt, cache.real_PT))
        return x

    def step(
        self, cache: Cache, wish_PR: Tensor, before_PRF: Tensor, answers_PR: Tensor,
        started_PR: Tensor, words_PRF: Tensor, asked_PR: Tensor,
    ) -> Tensor:  # fmt: skip
        """`[P, R, A]` logits of the next question, before masking; the cache grows by it.

        Beside it stand the wish, and the question before with its answer where there was one.
        """
        said = self._words(self.before, before_PRF) + self.answer(answers_PR)
        known = self.speed(wish_PR) + said * started_PR.unsqueeze(-1)
        x = (self._words(self.fields, words_PRF) + known).unsqueeze(2)  # [P, R, 1, D]
        start = cache.real_PT.sum(1)[:, None]
        count = cache.seen_PRS.sum(2) if cache.said else torch.zeros_like(asked_PR, dtype=torch.int)
        turn = self._rotation((start + count).unsqueeze(2))
        now = asked_PR.unsqueeze(2)
        seen = torch.cat([cache.seen_PRS, now], 2) if cache.said else now
        hide = torch.where(seen, 0.0, _MASKED).unsqueeze(2)  # [P, R, 1, S]
        said = []
        for number, (layer, prompt) in enumerate(zip(self._stack, cache.prompt, strict=True)):
            q, k, v = layer.split(x, turn)
            if cache.said:
                k, v = (torch.cat(two, 2) for two in zip(cache.said[number], (k, v), strict=True))
            said.append((k, v))
            x = layer.finish(x, _attend(q, (k, v), hide, prompt, cache.real_PT))
        cache.said, cache.seen_PRS = said, seen
        return self._logits(x.squeeze(2), words_PRF)

    def _inputs(self, speeds_PR: Tensor, words: Tensor, answers: Tensor) -> Tensor:
        """`[P, R, S, D]`: the question, the wish, and what was said before."""
        x = self._words(self.fields, words) + self.speed(speeds_PR).unsqueeze(2)
        said = self._words(self.before, words[:, :, :-1]) + self.answer(answers[:, :, :-1])
        y: Tensor = x + F.pad(said, (0, 0, 1, 0))
        return y

    def _words(self, table: nn.EmbeddingBag, words: Tensor) -> Tensor:
        flat = (words.long() + self.starts).flatten(0, -2)
        y: Tensor = table(flat).unflatten(0, words.shape[:-1])
        return y

    def _rotation(self, position: Tensor) -> _Rotation:
        half = self.config.width // self.config.heads // 2
        rate = 1000.0 ** -(torch.arange(half, device=position.device) / half)
        angles = (position.unsqueeze(-1) * rate).unsqueeze(-2)
        return angles.cos(), angles.sin()

    def _logits(self, x: Tensor, words: Tensor) -> Tensor:
        logits: Tensor = self.head(self.last(x)).float()
        if self.config.counts:
            words = words.long()
            after = (words[..., _PARTS] - words[..., _PART] - 1).clamp(min=0)
            is_tile = (words[..., _KIND] == TILE).unsqueeze(-1)
            logits = logits + is_tile * self.counts_KCA[after, words[..., _CAP]]
        return logits

    def _answers(self, x: Tensor, words: Tensor, options: Tensor) -> Tensor:
        if not self.config.masked:
            return self._logits(x, words).log_softmax(-1)
        kind = words[..., _KIND].unsqueeze(-1)
        first = torch.where(kind == CHOICE, OPTION, torch.where(kind == LOCATION, PLACE, EXPONENT))
        first = torch.where(kind == NUMBER, ANSWERS, first)
        place = torch.arange(self.config.answers, device=x.device)
        allowed = (place >= first) & (place < first + options.unsqueeze(-1))
        return self._logits(x, words).masked_fill(~allowed, _MASKED).log_softmax(-1)


def _attend(
    q: Tensor, own: tuple[Tensor, Tensor], hide: Tensor, prompt: tuple[Tensor, Tensor], real: Tensor
) -> Tensor:
    """Queries `[P, R, S, H, E]` over the prompt's keys and the program's own."""
    scale = q.shape[-1] ** -0.5
    hidden = torch.where(real, 0.0, _MASKED)[:, None, None, None, :]  # [P, 1, 1, 1, T]
    over_prompt = torch.einsum("prshe,pthe->prhst", q, prompt[0]) * scale + hidden
    over_own = torch.einsum("prshe,prthe->prhst", q, own[0]) * scale + hide.unsqueeze(2)
    weights = torch.cat([over_prompt, over_own], -1).softmax(-1).to(q.dtype)
    cut = [over_prompt.shape[-1], over_own.shape[-1]]
    of_prompt, of_own = torch.split(weights, cut, -1)
    mixed = torch.einsum("prhst,pthe->prshe", of_prompt, prompt[1])
    return mixed + torch.einsum("prhst,prthe->prshe", of_own, own[1])


def _log_counts(answers: int) -> Tensor:
    """`[parts after, exponent left, answer]`: log of the ways to deal out the rest."""
    parts, most = FIELDS["parts"], FIELDS["cap"]
    table = torch.zeros(parts, most, answers)
    for after in range(1, parts):
        for cap in range(most):
            for answer in range(cap + 1):
                table[after, cap, EXPONENT + answer] = math.log(
                    math.comb(cap - answer + after - 1, after - 1)
                )
    return table


def dialogue_of(written: Sequence[Written], rows: Sequence[Ints]) -> Dialogue:
    """Some programs of each sketch, without the questions that they were not asked."""
    most = max(len(index) for index in rows)
    asked = [one.asked[index] for one, index in zip(written, rows, strict=True)]
    steps = max(1, max(int(a.sum(1).max(initial=0)) for a in asked))
    shape = (len(written), most, steps)
    words = np.zeros((*shape, len(FIELDS)), np.int64)
    answers, options = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for k, (one, index, mine) in enumerate(zip(written, rows, asked, strict=True)):
        program, question = np.nonzero(mine)
        at = (mine.cumsum(1) - 1)[program, question]
        words[k, program, at] = one.words[index][program, question]
        answers[k, program, at] = one.answers[index][program, question]
        options[k, program, at] = one.options[index][program, question]
    return Dialogue(
        words_PRSF=torch.from_numpy(words),
        answers_PRS=torch.from_numpy(answers),
        options_PRS=torch.from_numpy(options),
    )


def log_likelihood(
    network: TLMNetwork, cache: Cache, speeds_PR: Tensor, dialogue: Dialogue
) -> Tensor:
    """`[P, R]`: of all answers of a program together."""
    logs = network(cache, speeds_PR, dialogue)
    picked = logs.gather(-1, dialogue.answers_PRS.unsqueeze(-1)).squeeze(-1)
    summed: Tensor = (picked * dialogue.asked_PRS).sum(-1)
    return summed


# -- writing --------------------------------------------------------------------------------------


class Turn(Protocol):
    """What is asked of the programs of one prompt: see `space.decoding.Turn`."""

    @property
    def asked(self) -> npt.NDArray[np.bool_]: ...

    @property
    def words(self) -> Words: ...

    @property
    def allowed(self) -> npt.NDArray[np.bool_]: ...

    @property
    def correction(self) -> Floats64: ...


class Sentences(Protocol):
    """Asks, and takes the answers: `space.decoding.Decoder`."""

    @property
    def n(self) -> int:
        """Programs of each prompt."""
        ...

    @property
    def done(self) -> bool: ...

    def turns(self) -> Sequence[Turn | None]: ...

    def push(self, answers: Sequence[Ints]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Sampling:
    temperature: float = 1.0
    """0 writes the likeliest answer."""
    top_k: int = 0
    """Only so many of the likeliest answers; 0 for all."""
    top_p: float = 1.0
    """Only the likeliest answers that together have this probability."""
    guidance: float = 0.0
    """How far beyond the wish: logits move away from those without a wish."""
    corrected: bool = True
    """Whether what limits leave of an answer's completions counts; without, a mask alone biases
    what is drawn."""
    masked: bool = True
    """Whether only what may come next is drawn; without, an answer that no legal program has ends
    its program."""

    def __post_init__(self) -> None:
        if self.temperature < 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                "temperature and top_k must not be negative and top_p be in (0, 1], but got "
                f"{self.temperature}, {self.top_k}, {self.top_p}"
            )

    def draw(
        self, logits_PRA: Tensor, turns: _Turns, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Answers `[P, R]` and their log-probabilities before temperature and cuts."""
        allowed = turns.allowed_PRA
        if self.masked:
            if self.corrected:
                logits_PRA = logits_PRA + turns.correction_PRA
            logits_PRA = logits_PRA.masked_fill(~allowed, -math.inf)
        logs = logits_PRA.log_softmax(-1)
        # A program in a dead end, or without a question, draws anything.
        stuck = ~allowed.any(-1, keepdim=True)
        logs = torch.where(stuck, torch.zeros_like(logs), logs)
        cut = self._cut(logs)
        noise = torch.empty_like(cut).exponential_(generator=generator).log()
        answers = (cut - noise if self.temperature else cut).argmax(-1)
        drawn, legal = (x.gather(-1, answers.unsqueeze(-1)).squeeze(-1) for x in (logs, allowed))
        # What a program says after its end is nobody's: it goes on with what may be said.
        answers = torch.where(legal, answers, allowed.int().argmax(-1))
        return answers, torch.where(legal, drawn, -math.inf)

    def _cut(self, logs: Tensor) -> Tensor:
        if self.temperature:
            logs = (logs / self.temperature).log_softmax(-1)
        if self.top_k:
            least = logs.topk(min(self.top_k, logs.shape[-1]), -1).values[..., -1:]
            logs = logs.masked_fill(logs < least, -math.inf)
        if self.top_p < 1:
            ordered, order = logs.sort(-1, descending=True)
            before = ordered.exp().cumsum(-1) - ordered.exp()
            gone = torch.zeros_like(before, dtype=torch.bool).scatter(
                -1, order, before >= self.top_p
            )
            logs = logs.masked_fill(gone, -math.inf)
        return logs


@dataclass(frozen=True, kw_only=True, eq=False)
class _Turns:
    """The turns of all prompts as tensors; who has no question is not asked."""

    words_PRF: Tensor
    asked_PR: Tensor
    allowed_PRA: Tensor
    correction_PRA: Tensor

    @classmethod
    def gather(
        cls, turns: Sequence[Turn | None], rows: int, device: torch.device
    ) -> _Turns:  # fmt: skip
        shape = (len(turns), rows)
        words = np.zeros((*shape, len(FIELDS)), np.int16)
        asked = np.zeros(shape, np.bool_)
        answers = next(turn.allowed.shape[1] for turn in turns if turn is not None)
        allowed = np.zeros((*shape, answers), np.bool_)
        correction = np.zeros((*shape, answers), np.float32)
        for place, turn in enumerate(turns):
            if turn is not None:
                words[place], asked[place] = turn.words, turn.asked
                allowed[place], correction[place] = turn.allowed, turn.correction
        # Shares of 0 are masked already.
        correction = np.nan_to_num(correction, neginf=0.0)
        tensors = [torch.from_numpy(x).to(device) for x in (words, asked, allowed, correction)]
        return cls(
            words_PRF=tensors[0],
            asked_PR=tensors[1],
            allowed_PRA=tensors[2],
            correction_PRA=tensors[3],
        )


class _Talk:
    """Programs under way, with one wish; what was read of the prompts is shared."""

    def __init__(self, network: TLMNetwork, read: Cache, wish: int, rows: int) -> None:
        self.network = network
        self.cache = replace(read, said=[])
        prompts, device = len(read.real_PT), read.real_PT.device
        self.wish = torch.full((prompts, rows), wish, device=device)
        self.words = torch.zeros((prompts, rows, len(FIELDS)), dtype=torch.int16, device=device)
        self.answers = torch.zeros((prompts, rows), dtype=torch.int64, device=device)
        self.started = torch.zeros((prompts, rows), dtype=torch.bool, device=device)

    def ask(self, turns: _Turns) -> Tensor:
        """`[P, R, A]` logits."""
        return self.network.step(
            self.cache, self.wish, self.words, self.answers, self.started, turns.words_PRF,
            turns.asked_PR,
        )  # fmt: skip

    def answered(self, turns: _Turns, answers: Tensor) -> None:
        asked = turns.asked_PR
        self.words = torch.where(asked.unsqueeze(-1), turns.words_PRF, self.words)
        self.answers = torch.where(asked, answers, self.answers)
        self.started = self.started | asked


@register
class TLM(Model):
    """Writes programs; ranks by how much likelier one is where speed is wished for than where it
    is not."""

    kind: ClassVar[str] = "tlm"

    def __init__(
        self, network: TLMNetwork, targets: Mapping[str, str], wish: int = FASTEST
    ) -> None:
        self.network = network.eval()
        self.targets = dict(targets)
        """JSON of each platform's target: the prompt has its numbers."""
        self.platforms = tuple(targets)
        self.wish = wish
        """The class of speed that is asked for; `UNKNOWN` where only fast programs were learnt."""
        self.atomic = network.config.atomic
        self.needs = feature_set("sentence-atomic" if self.atomic else "sentence")

    def prompt(self, grammar: Grammar, platform: str) -> Words:
        self.head_index(platform)
        return grammar.prompt(json.loads(self.targets[platform]))

    @torch.inference_mode()
    def sketch_scores(self, prompts: Sequence[Words]) -> Floats64:
        """`[P]`: log of how likely each sketch of a task is to hold its fastest programs."""
        cache = self.network.read(Prompts.stack(prompts, self.device))
        wish = torch.full((len(prompts), 1), self.wish, device=self.device)
        return self.network.judge(cache, wish)[:, 0].double().cpu().numpy()

    @torch.inference_mode()
    def write(
        self, prompts: Sequence[Words], decoder: Sentences, sampling: Sampling, seed: int
    ) -> Floats64:
        """Answers all that the decoder asks; `[P, R]` log-probabilities of what was written.

        The decoder has a part for each prompt, all of R programs. A program that ran into a dead
        end has probability 0.
        """
        generator = torch.Generator(self.device).manual_seed(seed)
        rows = decoder.n
        wishes = [self.wish, UNKNOWN] if sampling.guidance else [self.wish]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            read = self.network.read(Prompts.stack(prompts, self.device))
            talks = [_Talk(self.network, read, wish, rows) for wish in wishes]
            total = torch.zeros((len(prompts), rows), dtype=torch.float64, device=self.device)
            while not decoder.done:
                turns = _Turns.gather(decoder.turns(), rows, self.device)
                logits = [talk.ask(turns) for talk in talks]
                guided = logits[0] + sampling.guidance * (logits[0] - logits[-1])
                answers, logs = sampling.draw(guided, turns, generator)
                for talk in talks:
                    talk.answered(turns, answers)
                total += torch.where(turns.asked_PR, logs.double(), 0.0)
                decoder.push(list(answers.cpu().numpy()))
        return total.cpu().numpy()

    @property
    def device(self) -> torch.device:
        return self.network.head.weight.device

    @torch.inference_mode()
    def opinions(self, inputs: SentenceSet, platform: str) -> Floats32:
        self.head_index(platform)
        scores = np.zeros((len(inputs), 1), np.float32)
        for grammar, written, members in zip(
            inputs.grammars, inputs.written, inputs.members, strict=True
        ):
            cache = self.network.read(Prompts.stack([self.prompt(grammar, platform)]))
            for start in range(0, len(members), _CHUNK):
                rows = np.arange(start, min(start + _CHUNK, len(members)))
                dialogue = dialogue_of([written], [rows])
                score = self._likelihood(cache, dialogue, self.wish)
                if self.wish != UNKNOWN:
                    score = score - self._likelihood(cache, dialogue, UNKNOWN)
                scores[members[rows], 0] = score[0].numpy()
        return scores

    def _likelihood(self, cache: Cache, dialogue: Dialogue, speed: int) -> Tensor:
        speeds = torch.full(dialogue.answers_PRS.shape[:2], speed)
        told = log_likelihood(self.network, cache, speeds, dialogue)
        return told + self.network.judge(cache, speeds)

    def section(self) -> dict[str, Any]:
        return {
            "network": asdict(self.network.config), "targets": self.targets, "wish": self.wish
        }  # fmt: skip

    def tensors(self, *, half: bool) -> Tensors:
        dtype = torch.float16 if half else torch.float32
        return {
            name: tensor.detach().to("cpu", dtype).numpy()
            for name, tensor in self.network.state_dict().items()
        }

    @classmethod
    def build(
        cls, platforms: tuple[str, ...], section: Mapping[str, Any], tensors: Tensors
    ) -> Self:
        config = TLMConfig(**section["network"])
        network = built(lambda: TLMNetwork(config), tensors, config.layers)
        targets = {name: section["targets"][name] for name in platforms}
        wish = int(section["wish"])
        if not 0 <= wish < N_SPEEDS:
            raise ModelError(f"a wish is a class of speed below {N_SPEEDS}, but got {wish}")
        return cls(network, targets, wish)
