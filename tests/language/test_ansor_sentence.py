"""Ansor records as sentences: every one is written and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ansor_support import Records, cpu_steps, gpu_steps, read_sketches, records_of
from hypothesis import given
from hypothesis import strategies as st

from tensorese.language.ansor import join_steps
from tensorese.language.ansor_sentence import ansor_target, read_ansor_grammar
from tensorese.language.sentence import CHOICE, LOCATION, TILE, SentenceError
from tensorese.language.words import FIELDS

pytestmark = pytest.mark.null

FILES = ("x86", "all_failed_cpu", "a100", "rtx3080", "mi50", "k80", "v100")
RECORDS = {"x86": 5126, "all_failed_cpu": 7296, "a100": 4077, "rtx3080": 4077}


def check(sketch: Records) -> int:
    grammar = sketch.grammar
    written = grammar.write(sketch.rows)
    silent = np.where(written.asked, written.answers, 0)
    assert np.array_equal(grammar.read(silent), sketch.rows)
    for words in (grammar.grammar.words, written.words):
        assert ((words >= 0) & (words < list(FIELDS.values()))).all()
    return len(sketch.rows)


def test_decisions_are_tiles_places_limits_and_digits() -> None:
    cpu = records_of(cpu_steps(), cpu_steps(place=2)).grammar.grammar
    assert [(hole.kind, hole.parts, hole.extent) for hole in cpu.holes] == [
        (TILE, 4, 64),
        (TILE, 4, 48),
        (TILE, 2, 80),
        (LOCATION, 1, 0),
        (CHOICE, 1, 4),
    ]
    gpu = records_of(gpu_steps()).grammar.grammar
    assert [hole.extent for hole in gpu.holes if hole.kind == TILE] == [256, 128, 64]
    digits = [hole.extent for hole in gpu.holes if hole.kind == CHOICE and hole.access]
    assert digits == [32, 32, 32, 2, 32]
    assert gpu.holes[-1].extent == 5  # 1024 is for GPUs alone


def test_a_place_that_leaves_no_choice_is_not_asked() -> None:
    fixed, free = records_of(cpu_steps()), records_of(cpu_steps(), cpu_steps(place=2))
    questions = [len(r.grammar.grammar.questions) for r in (fixed, free)]
    assert questions == [questions[1] - 1, questions[1]]


def test_both_machines_round_trip() -> None:
    for records in (
        records_of(cpu_steps(), cpu_steps(4, 2, 512, 2), cpu_steps(1, 16, 0)),
        records_of(gpu_steps(), gpu_steps(1, 64, (23 * 37, 1), 0), gpu_steps(fetch=(630, 63))),
    ):
        assert check(records) == 3


@given(st.integers(1, 32**3), st.integers(1, 64))
def test_every_fetch_of_a_record_can_be_said(quotient: int, length: int) -> None:
    assert check(records_of(gpu_steps(fetch=(quotient * length, length)))) == 1


@pytest.mark.parametrize(
    "other",
    [
        cpu_steps(outer=3),
        cpu_steps(inner=0),
        cpu_steps(unroll=17),
        cpu_steps(unroll=1024),
        cpu_steps(place=4),
    ],
)
def test_a_row_of_another_sketch_is_refused(other: list[list[object]]) -> None:
    grammar = records_of(cpu_steps(), cpu_steps(place=2)).grammar
    with pytest.raises(SentenceError, match="lengths must divide the sketch's extents"):
        grammar.write(records_of(other).rows)


@pytest.mark.parametrize("fetch", [(97, 4), (65, 65), (32**3 * 4 + 4, 4), (0, 1)])
def test_a_fetch_that_no_digits_say_is_refused(fetch: tuple[int, int]) -> None:
    grammar = records_of(gpu_steps()).grammar
    with pytest.raises(SentenceError, match="is not so"):
        grammar.write(records_of(gpu_steps(fetch=fetch)).rows)


def test_rows_of_another_length_are_refused() -> None:
    grammar = records_of(cpu_steps()).grammar
    with pytest.raises(SentenceError, match="row of 9 integers, but got rows of shape"):
        grammar.write(records_of(gpu_steps()).rows)


def test_steps_that_differ_are_said_differently() -> None:
    base = cpu_steps()
    fused = [[*s[:2], [0, 1, 2]] if s[0] == "FU" else s for s in base]
    order = [[*s[:2], [0, 1, 2, 3, 4, 5]] if s[:2] == ["RE", 3] else s for s in base]
    scope = [["CHW", 2, "shared"], *base[1:]]
    seen = [records_of(steps).grammar.grammar.words for steps in (base, fused, order, scope)]
    assert len({words.tobytes() for words in seen}) == 4


def test_a_sketch_without_known_programs_of_one_extent_needs_single_lengths() -> None:
    steps = [["FU", 1, [0, 1]], ["SP", 1, 0, 12, [2, 3], 1]]
    other = [["FU", 1, [0, 1]], ["SP", 1, 0, 24, [2, 3], 1]]
    records = records_of(steps, other)
    with pytest.raises(SentenceError, match="must have one length, but this sketch has 2"):
        read_ansor_grammar(records.body, records.slots, records.rows)
    assert check(records_of(steps)) == 1


def test_the_machine_of_a_record_is_told() -> None:
    gpu = ansor_target(
        "cuda -keys=cuda,gpu -arch=sm_80 -max_num_threads=1024",
        [-1, 16, 64, 49152, 2147483647, 1024, 8, 32],
    )
    assert gpu["arch"] == "sm_80" and gpu["max_shared_memory_per_block"] == 49152
    cpu = ansor_target("llvm -keys=cpu ", [8, 64, 64, 0, 0, 0, 0, 0])
    assert cpu == {"kind": "llvm", "num-cores": 8}
    grammar = records_of(cpu_steps()).grammar
    assert len(grammar.prompt(cpu)) == len(grammar.grammar.words) + 5


@pytest.mark.shared
@pytest.mark.parametrize("name", FILES)
def test_public_records_round_trip(shared_data: Path, name: str) -> None:
    every = {"mi50": 41, "k80": 41, "v100": 61}.get(name, 5)
    sketches = read_sketches(shared_data / "ansor" / f"{name}.json.zst", every)
    assert sum(map(check, sketches)) > 800


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", FILES)
def test_every_public_record_round_trips(shared_data: Path, name: str) -> None:
    sketches = read_sketches(shared_data / "ansor" / f"{name}.json.zst")
    done = sum(map(check, sketches))
    assert done == RECORDS.get(name, done) >= 4077
    prompts = {
        (s.key, s.grammar.grammar.words.tobytes(), s.grammar.grammar.holes) for s in sketches
    }
    assert len(prompts) == len(sketches)  # each sketch has a prompt of its own


@pytest.mark.shared
def test_read_back_answers_are_the_steps_of_the_record(shared_data: Path) -> None:
    for sketch in read_sketches(shared_data / "ansor" / "a100.json.zst", 50):
        grammar = sketch.grammar
        again = grammar.read(grammar.write(sketch.rows).answers)
        for row, known in zip(again.tolist(), sketch.rows.tolist(), strict=True):
            steps = join_steps(sketch.body, sketch.slots, tuple(row))
            assert steps == join_steps(sketch.body, sketch.slots, tuple(known))
