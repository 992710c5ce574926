"""Schedules as sentences: Ansor steps and MetaSchedule traces, read and written."""

from tensorese.language.ansor import join_steps, parse_steps, split_steps, write_steps
from tensorese.language.metaschedule import (
    cut_tail,
    join_trace,
    parse_trace,
    split_trace,
    write_trace,
)
from tensorese.language.primitive import Arg, Form, Primitive, Sentence
from tensorese.language.skeleton import Skeleton, skeleton
from tensorese.language.vocabulary import Vocabulary

__all__ = [
    "Arg",
    "Form",
    "Primitive",
    "Sentence",
    "Skeleton",
    "Vocabulary",
    "cut_tail",
    "join_steps",
    "join_trace",
    "parse_steps",
    "parse_trace",
    "skeleton",
    "split_steps",
    "split_trace",
    "write_steps",
    "write_trace",
]
