"""A language model's trunk, reading: its states of a whole program, and a scorer taught on them.

The trunk learns to write the programs of all training tasks, with nothing said of their speed, and
is then left as it is; only the scorer sees labels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensorese.arrays import Floats32
from tensorese.features.matrix import Encoder, MatrixSpec
from tensorese.features.programs import Encoded, ProgramSet
from tensorese.features.sentences import SentenceSet
from tensorese.language.sentence import UNKNOWN
from tensorese.models.network import ProgramBatch, TorchNetwork
from tensorese.models.tlm import Dialogue, Prompts, TLMNetwork, dialogue_of, sized
from tensorese.training.language_model import LanguageConfig, LanguageTrainer
from tensorese.training.sentence_data import SentenceWriter

CHUNK = 512
"""Programs that are read at once."""


@dataclass(frozen=True, kw_only=True)
class ScorerConfig:
    columns: int
    width: int = 128
    dropout: float = 0.1


class Scorer(TorchNetwork):
    """`[N, H, 2]` of states that stand where a program's values stand."""

    def __init__(self, config: ScorerConfig, platforms: tuple[str, ...]) -> None:
        super().__init__()
        self.config: ScorerConfig = config
        self.platforms = platforms
        width = config.width
        self.read = nn.Sequential(
            *(nn.Linear(config.columns, 2 * width), nn.GELU(), nn.Dropout(config.dropout)),
            *(nn.Linear(2 * width, width), nn.GELU(), nn.Dropout(config.dropout)),
        )
        self.heads = nn.ModuleList(nn.Linear(width, 2) for _ in platforms)

    def forward(self, batch: ProgramBatch) -> Tensor:
        x_ND = self.read(batch.values_NV)
        return torch.stack([head(x_ND) for head in self.heads], dim=-2)


def language_model(
    programs: ProgramSet, targets: dict[str, str], tasks: Any, steps: int, device: str, size: str
) -> TLMNetwork:
    """Likelihood of decisions alone: no speed is told, and no choice of sketches is learnt."""
    writer = SentenceWriter({name: json.loads(text) for name, text in targets.items()})
    writer.add_measured(programs, tasks)
    torch.manual_seed(0)
    network = TLMNetwork(sized(size))
    config = LanguageConfig(stage="pretrain", steps=steps, sketches=0.0)
    trainer = LanguageTrainer(network, writer.finish(), config, device=device)
    trainer.fit()
    first, last = (trainer.history[k]["loss"] for k in (0, -1))
    print(f"language model, {size}: loss {first:.3f} to {last:.3f} an answer", flush=True)
    return network.eval()


def _ended(dialogue: Dialogue) -> Dialogue:
    """One question more, after the last: what is known there knows the last answer."""
    count = dialogue.asked_PRS.sum(-1, keepdim=True)
    options = F.pad(dialogue.options_PRS, (0, 1)).scatter(-1, count, 1)
    return Dialogue(
        words_PRSF=F.pad(dialogue.words_PRSF, (0, 0, 0, 1)),
        answers_PRS=F.pad(dialogue.answers_PRS, (0, 1)),
        options_PRS=options,
    )


@torch.inference_mode()
def states_of(network: TLMNetwork, sentences: SentenceSet, target: str) -> Floats32:
    """`[N, 3 D]`: the state after the last answer, the program's mean, its prompt's."""
    device, width = network.head.weight.device, network.config.width
    out = np.zeros((len(sentences), 3 * width), np.float32)
    for grammar, written, members in zip(
        sentences.grammars, sentences.written, sentences.members, strict=True
    ):
        prompt = Prompts.stack([grammar.prompt(json.loads(target))], device)
        cache = network.read(prompt)
        for start in range(0, len(members), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(members)))
            dialogue = _ended(dialogue_of([written], [rows]))
            dialogue = Dialogue(**{k: v.to(device) for k, v in vars(dialogue).items()})
            untold = torch.full((1, len(rows)), UNKNOWN, device=device)
            x = network.last(network.states(cache, untold, dialogue))[0]  # [R, S, D]
            asked = dialogue.asked_PRS[0]
            last = (asked.sum(-1) - 1)[:, None, None].expand(-1, 1, width)
            mean = (x * asked[..., None]).sum(1) / asked.sum(1, keepdim=True)
            parts = [x.gather(1, last)[:, 0], mean, cache.sketch_PD.expand(len(rows), -1)]
            out[members[rows]] = torch.cat(parts, -1).float().cpu().numpy()
    return out


def as_encoded(states: Floats32, centre: Floats32, spread: Floats32) -> Encoded:
    """States as a trainer takes programs: values under one empty template."""
    spec = MatrixSpec(length=1, names=1, numbers=4, context=False, physics=False)
    empty = Encoder(spec).template("metaschedule", "[[],[]]", ())
    values = ((states - centre) / spread).astype(np.float32)
    pair = np.zeros(len(values), np.int64)
    return Encoded(templates=(empty,), pair=pair, values=values, strangers={})


def standard(states: Floats32, other: Floats32) -> tuple[Encoded, Encoded]:
    """Both on the scale of the first."""
    centre, spread = states.mean(0), states.std(0)
    spread = np.where(spread > 1e-4, spread, np.float32(1e6))
    return as_encoded(states, centre, spread), as_encoded(other, centre, spread)
