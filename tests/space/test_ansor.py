"""Ansor programs written at random: the decoder offers what the checker accepts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ansor_support import Records, cpu_steps, gpu_steps, read_sketches, records_of

from tensorese.language.ansor import join_steps
from tensorese.language.ansor_check import AnsorHardware, broken_rules
from tensorese.records.nouns import Sketch
from tensorese.space.ansor import ansor_space
from tensorese.space.decoding import SketchDecoder

pytestmark = pytest.mark.null


def check(sketch: Records, n: int = 50) -> int:
    """Random programs of a sketch are all sound, and no sound record is masked; returns how many
    of its records are."""
    rng, grammar = np.random.default_rng(0), sketch.grammar
    noun = Sketch(dialect="ansor", body=sketch.body, slots=sketch.slots)
    space = ansor_space(noun, grammar, sketch.hardware)
    decoder = SketchDecoder(space, grammar.grammar, n)
    while not decoder.done:
        turn = decoder.turn()
        assert (turn.allowed.any(1) | ~turn.asked).all()
        decoder.push(np.where(turn.allowed, rng.random(turn.allowed.shape), -1.0).argmax(1))
    assert space.legal(decoder.rows()).all()
    rows = grammar.narrow(decoder.rows())
    assert np.array_equal(grammar.widen(rows), decoder.rows())
    places = offered(sketch)
    for row in rows.tolist():
        steps = join_steps(sketch.body, sketch.slots, tuple(row))
        assert broken_rules(steps, sketch.hardware, places) == {}
    known = grammar.widen(sketch.rows)
    sound = known[space.legal(known)]
    written = grammar.grammar.write(sound)
    decoder = SketchDecoder(space, grammar.grammar, len(sound))
    for answers, asked in zip(written.answers.T.astype(np.int64), written.asked.T, strict=True):
        allowed = decoder.turn().allowed[np.arange(len(sound)), answers]
        assert (allowed | ~asked).all()
        decoder.push(answers)
    return len(sound)


def offered(sketch: Records) -> dict[int, set[int]]:
    """By step, the places of the sketch's records."""
    places: dict[int, set[int]] = {}
    for row in sketch.rows.tolist():
        for k, step in enumerate(join_steps(sketch.body, sketch.slots, tuple(row))):
            if step[0] == "CA":
                places.setdefault(k, set()).add(step[3])
    return places


def test_programs_for_a_cpu_and_a_gpu() -> None:
    assert check(records_of(cpu_steps(), cpu_steps(4, 2, 512, 2)), 500) == 2
    assert check(records_of(gpu_steps(), gpu_steps(1, 64, (23, 1))), 500) == 2


def test_threads_of_the_machine_are_kept() -> None:
    small = AnsorHardware(threads=64, vthreads=2, warp=32)
    assert check(records_of(gpu_steps(), gpu_steps(threads=32), hardware=small), 500) == 1


@pytest.mark.shared
@pytest.mark.parametrize(("name", "every", "sketches"), [("x86", 4, 19), ("a100", 9, 1)])
def test_random_programs_of_public_sketches(
    shared_data: Path, name: str, every: int, sketches: int
) -> None:
    records = read_sketches(shared_data / "ansor" / f"{name}.json.zst", every)
    assert sum(map(check, records[::sketches])) > 40


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", ["x86", "all_failed_cpu", "a100", "mi50", "k80", "v100"])
def test_random_programs_of_every_public_sketch(shared_data: Path, name: str) -> None:
    records = read_sketches(shared_data / "ansor" / f"{name}.json.zst")
    assert sum(map(check, records)) > 0.85 * sum(len(r.rows) for r in records)
