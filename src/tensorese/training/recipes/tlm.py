"""`train tlm`: random sentences, then measured and scored ones, then pairs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch

from tensorese.features.programs import DataError
from tensorese.language.sentence import UNKNOWN
from tensorese.models.tlm import FASTEST, TLM, TLMConfig, TLMNetwork, sized
from tensorese.training.language_model import LanguageConfig, LanguageTrainer, Stage
from tensorese.training.random_sentences import random_programs
from tensorese.training.recipes.base import DataSelection, Recipe, Trained, TrainingJob
from tensorese.training.sentence_data import Sentences, SentenceWriter, known_targets

FINE_TUNING = ("speed", "best")


@dataclass(frozen=True, kw_only=True)
class TLMRecipe(Recipe):
    network: TLMConfig = field(default_factory=lambda: sized("tiny"))
    random: int = 0
    """Legal programs of a sketch that are drawn for pre-training, besides those of the records;
    takes TVM and a second or so a task."""
    pretrain: int = 1000
    """Steps on sentences whose speed is not told."""
    preference: int = 0
    """Steps on pairs of programs after fine-tuning (DPO)."""
    preference_lr: float = 3e-5
    half: bool = False
    """Weights in 16 bits."""
    learn: LanguageConfig = field(default_factory=LanguageConfig)
    """Of fine-tuning; its `stage` is `speed` or `best`."""

    @classmethod
    def named(cls, kind: str, preset: str, selection: DataSelection) -> Self:
        if preset == "ship":
            return cls(selection=replace(selection, fold=-1), half=True)
        return cls(selection=selection, network=sized("tiny" if preset == "default" else preset))

    def train(self, job: TrainingJob) -> Trained:
        targets = known_targets(job.stores)
        sentences = self._sentences(job, targets)
        torch.manual_seed(self.seed)
        network = TLMNetwork(self.network)
        for number, stage in enumerate(self._stages()):
            self._run(network, sentences, stage, number, job)
        wish = UNKNOWN if self.learn.stage == "best" else FASTEST
        platforms = {name: targets[name] for name in job.programs.platforms}
        note = f"{len(sentences):,} sentences of {len(sentences.words):,} programs"
        return Trained(model=TLM(network.cpu(), platforms, wish), notes=(note,), half=self.half)

    def _sentences(self, job: TrainingJob, targets: dict[str, str]) -> Sentences:
        known = {name: json.loads(text) for name, text in targets.items()}
        writer = SentenceWriter(known, atomic=self.network.atomic)
        writer.add_measured(job.programs, job.sides.seen)
        barred = {job.programs.tasks[k] for k in job.sides.held_out}
        for store in job.corpora:
            writer.add_scored(store, barred)
        if self.random:
            seen = [job.programs.tasks[k] for k in job.sides.seen]
            workloads = [job.programs.workloads[name] for name in seen]
            for platform, text in targets.items():
                if platform in job.programs.platforms:
                    drawn = random_programs(workloads, text, self.random, self.seed)
                    writer.add_drawn(drawn, platform)
        return writer.finish()

    def _stages(self) -> Sequence[LanguageConfig]:
        learn = replace(self.learn, seed=self.seed)
        if learn.stage not in FINE_TUNING:
            raise DataError(
                f"--set stage is how fine-tuning is done, one of {', '.join(FINE_TUNING)}, but got "
                f"{learn.stage}; steps of the other stages are pretrain=N and preference=N"
            )
        before: Stage = "pretrain"
        stages = [
            replace(learn, stage=before, steps=self.pretrain),
            learn,
            replace(learn, stage="preference", steps=self.preference, lr=self.preference_lr),
        ]
        stages = [stage for stage in stages if stage.steps > 0]
        if not stages:
            raise DataError("a model needs at least one step, but all stages have 0; set steps")
        return stages

    def _run(
        self,
        network: TLMNetwork,
        sentences: Sentences,
        stage: LanguageConfig,
        number: int,
        job: TrainingJob,
    ) -> None:
        state = job.checkpoint and job.checkpoint.with_name(f"{number}-{job.checkpoint.name}")
        trainer = LanguageTrainer(
            network,
            sentences,
            stage,
            device=job.device,
            wrap=job.wrap if job.world > 1 else None,
            rank=job.rank,
            world=job.world,
        )
        trainer.fit(resume_from=state, progress=job.progress)


RECIPE = TLMRecipe
