"""Sentences to learn from: measured programs with their speeds, and programs a model has scored.

A program is written once; every platform that says something of it makes a sentence of it, under
that platform's prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorese.arrays import Floats64, Ints
from tensorese.features.programs import DataError, ProgramSet
from tensorese.features.sentences import grammar_of
from tensorese.language.sentence import FIELDS, N_SPEEDS, UNKNOWN, Grammar, Words, speed_class
from tensorese.records.nouns import Sketch, Workload
from tensorese.records.store import Store


@dataclass(frozen=True, kw_only=True, eq=False)
class Sentences:
    """`[N]` sentences of `[M]` programs under `[P]` prompts."""

    prompts: tuple[Words, ...]
    groups: tuple[Ints, ...]
    """By task and platform: the prompts of its sketches."""
    words: Words
    """`[M, S, fields]` of the questions that each program was asked, padded at the end."""
    answers: Words
    options: Words
    """`[M, S]`; 0 options where there is no question."""
    program: Ints
    prompt: Ints
    share: Floats64
    """`[N]`: best latency of the task on the platform over the program's; NaN for failures."""
    speed: Ints
    """`[N]`: class of that."""

    def __len__(self) -> int:
        return len(self.program)

    def counts(self) -> Floats64:
        """`[P, speeds]`: sentences under each prompt, by class of speed."""
        counts = np.zeros((len(self.prompts), N_SPEEDS))
        np.add.at(counts, (self.prompt, self.speed), 1.0)
        np.add.at(counts, (self.prompt, np.full(len(self), UNKNOWN)), 1.0)
        return counts

    def only(self, keep: np.ndarray[Any, Any]) -> Sentences:
        """Some of the sentences; prompts stay."""
        return Sentences(**{**vars(self), **{
            name: getattr(self, name)[keep] for name in ("program", "prompt", "share", "speed")
        }})  # fmt: skip


@dataclass(eq=False)
class SentenceWriter:
    """Collects sentences from stores; `finish` stacks them."""

    targets: Mapping[str, Mapping[str, Any]]
    """By platform: what its prompt says of it."""
    atomic: bool = False
    """Whether numbers are whole."""
    _prompts: list[Words] = field(default_factory=list)
    _places: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """Of the prompt of a workload's sketch on a platform."""
    _groups: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    _parts: list[tuple[Words, Words, Words]] = field(default_factory=list)
    _sentences: list[tuple[Ints, Ints, Floats64, Ints]] = field(default_factory=list)
    _programs: int = 0

    def add_measured(self, programs: ProgramSet, tasks: Iterable[int]) -> None:
        wanted = set(tasks)
        share = _shares(programs)
        for pair, decisions, members in zip(
            programs.pairs, programs.decisions, programs.members, strict=True
        ):
            if int(programs.task[members[0]]) not in wanted:
                continue
            workload = programs.workloads[pair.workload]
            grammar = grammar_of(workload, pair.sketch, decisions[0], self.atomic)
            first = self._write(grammar, decisions)
            for head, platform in enumerate(programs.platforms):
                mine = share[members, head]
                told = np.flatnonzero(np.isfinite(mine) | programs.failed[members, head])
                if len(told):
                    place = self._place(grammar, workload.id, pair.sketch.id, platform)
                    self._say(first + told, place, mine[told])

    def add_scored(self, store: Store, avoid: Iterable[str]) -> None:
        """Programs of a corpus (`tensorese data corpus`), but of the workloads to `avoid`."""
        left_out = set(avoid)
        table = store.program_table().to_pydict()
        score = np.array([np.nan if x is None else x for x in table["score"]], np.float64)
        by_task: dict[tuple[str, str], list[int]] = {}
        for index, (name, origin) in enumerate(
            zip(table["workload_id"], table["origin"], strict=True)
        ):
            platform = origin.rpartition("@")[2]
            if name not in left_out and platform in self.targets:
                by_task.setdefault((name, platform), []).append(index)
        workloads, sketches = store.workloads(), store.sketches()
        for (name, platform), rows in by_task.items():
            best = np.nanmax(score[rows]) if np.isfinite(score[rows]).any() else 0.0
            by_sketch: dict[str, list[int]] = {}
            for row in rows:
                by_sketch.setdefault(table["sketch_id"][row], []).append(row)
            for key, members in by_sketch.items():
                decisions = np.array([table["decisions"][k] for k in members], np.int64)
                decisions = decisions.reshape(len(members), -1)
                grammar = grammar_of(workloads[name], sketches[key], decisions[0], self.atomic)
                first = self._write(grammar, decisions)
                share = np.exp2(score[members] - best)
                self._say(
                    first + np.arange(len(members)),
                    self._place(grammar, name, key, platform),
                    share,
                    unknown=~np.isfinite(score[members]),
                )

    def add_drawn(self, programs: Iterable[tuple[Workload, Sketch, Ints]], platform: str) -> None:
        """Programs that nothing is known of."""
        for workload, sketch, rows in programs:
            grammar = grammar_of(workload, sketch, rows[0], self.atomic)
            first = self._write(grammar, rows)
            place = self._place(grammar, workload.id, sketch.id, platform)
            nobody = np.full(len(rows), np.nan)
            self._say(first + np.arange(len(rows)), place, nobody, unknown=np.True_)

    def finish(self) -> Sentences:
        if not self._sentences:
            raise DataError(
                "a model that writes learns from programs of at least one task, but there are "
                "none; add records, or a corpus"
            )
        steps = max(1, max(part[1].shape[1] for part in self._parts))
        words, answers, options = (
            np.concatenate([_padded(part[k], steps) for part in self._parts]) for k in range(3)
        )
        program, prompt, share, speed = (
            np.concatenate([one[k] for one in self._sentences]) for k in range(4)
        )
        return Sentences(
            prompts=tuple(self._prompts),
            groups=tuple(np.array(sorted(group), np.int64) for group in self._groups.values()),
            words=words,
            answers=answers,
            options=options,
            program=program,
            prompt=prompt,
            share=share,
            speed=speed,
        )

    def _place(self, grammar: Grammar, workload: str, sketch: str, platform: str) -> int:
        key = (workload, sketch, platform)
        if key not in self._places:
            self._places[key] = len(self._prompts)
            self._prompts.append(grammar.prompt(self.targets[platform]))
            self._groups.setdefault((workload, platform), []).append(self._places[key])
        return self._places[key]

    def _write(self, grammar: Grammar, decisions: Ints) -> int:
        """Writes programs down; returns the number of the first."""
        written = grammar.write(decisions)
        n, steps = len(decisions), int(written.asked.sum(1).max(initial=0))
        words = np.zeros((n, steps, len(FIELDS)), np.int16)
        answers, options = np.zeros((n, steps), np.int16), np.zeros((n, steps), np.int16)
        program, question = np.nonzero(written.asked)
        at = (written.asked.cumsum(1) - 1)[program, question]
        words[program, at] = written.words[program, question]
        answers[program, at] = written.answers[program, question]
        options[program, at] = written.options[program, question]
        self._parts.append((words, answers, options))
        first, self._programs = self._programs, self._programs + n
        return first

    def _say(self, programs: Ints, prompt: int, share: Floats64, unknown: Any = np.False_) -> None:
        speed = np.where(unknown, UNKNOWN, speed_class(share))
        self._sentences.append((programs, np.full(len(programs), prompt), share, speed))


def _padded(array: Words, steps: int) -> Words:
    width = [(0, 0), (0, steps - array.shape[1])] + [(0, 0)] * (array.ndim - 2)
    return np.pad(array, width)


def _shares(programs: ProgramSet) -> Floats64:
    """`[n, platforms]`: best latency of the task there over the program's."""
    best = np.full((len(programs.tasks), len(programs.platforms)), np.inf)
    np.fmin.at(best, programs.task, programs.latency)
    shares: Floats64 = best[programs.task] / programs.latency
    return shares


def known_targets(stores: Sequence[Store]) -> dict[str, str]:
    """JSON of each platform's target."""
    return {name: text for store in stores for name, text in store.targets().items()}
