"""Programs written answer by answer: nothing legal is masked, nothing illegal comes out."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from space_support import cuda_target, every_row, grammar_for, small_space
from tensorese.arrays import Floats64, Ints
from tensorese.collect.tasklist import ListedTask, read_tasks
from tensorese.features.sentences import grammar_of
from tensorese.language.sentence import TILE, Grammar, number_answers
from tensorese.records.nouns import Sketch
from tensorese.space.decisions import DecisionSpace
from tensorese.space.decoding import Decoder, SketchDecoder, Turn
from tensorese.space.limits import Dimension, Product, SharedMemory, StagedBuffer
from tensorese.space.slots import Choice, Tile
from tensorese.space.space import task_space
from tensorese.space.tiles import Bools
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

TASKS = Path(__file__).resolve().parents[2] / "data" / "tasks.parquet"
ATOMIC = pytest.mark.parametrize("atomic", [False, True])
SPACES = pytest.mark.parametrize("space", [small_space(), small_space(limited=True)])


def answer(turn: Turn, rng: np.random.Generator) -> Ints:
    """One allowed answer each, any of them as likely."""
    return np.where(turn.allowed, rng.random(turn.allowed.shape), -1.0).argmax(1)


def write(decoder: SketchDecoder, rng: np.random.Generator) -> tuple[Ints, Bools]:
    """`[n, d]` programs, and which of them ran into a dead end."""
    dead = np.zeros(decoder.n, np.bool_)
    while not decoder.done:
        turn = decoder.turn()
        dead |= turn.asked & ~turn.allowed.any(1)
        decoder.push(answer(turn, rng))
    return decoder.rows(), dead


def refused_answers(space: DecisionSpace, grammar: Grammar, rows: Ints) -> int:
    """How many answers of these programs a mask excludes; they come out as they are."""
    written, refused = grammar.write(rows), 0
    decoder = SketchDecoder(space, grammar, len(rows))
    for answers, asked in zip(written.answers.T.astype(np.int64), written.asked.T, strict=True):
        turn = decoder.turn()
        assert np.array_equal(turn.asked, asked)
        refused += int((asked & ~turn.allowed[np.arange(len(rows)), answers]).sum())
        decoder.push(answers)
    assert decoder.done and np.array_equal(decoder.rows(), rows)
    return refused


@pytest.mark.null
@SPACES
@ATOMIC
def test_random_answers_end_in_legal_programs_and_reach_all_of_them(
    space: DecisionSpace, atomic: bool
) -> None:
    grammar = replace(grammar_for(space), atomic=atomic)
    decoder = SketchDecoder(space, grammar, 20_000)
    rows, dead = write(decoder, np.random.default_rng(0))
    assert not dead.any()
    assert space.legal(rows).all()
    every = every_row(space)
    legal = every[space.legal(every)]
    assert len(np.unique(rows, axis=0)) > 0.9 * len(legal)
    assert refused_answers(space, grammar, legal) == 0


def bounded(low: int, high: int, *extents: int) -> DecisionSpace:
    """Tiles in three parts; the product of their middle parts and one last part is bounded."""
    slots = [Tile(column=3 * k, extent=e, parts=3, limit=-1) for k, e in enumerate(extents)]
    columns = (*(slot.column + 1 for slot in slots), 5)
    return DecisionSpace(
        sketch=Sketch(dialect="metaschedule", body="[]", slots=()),
        slots=tuple(slots),
        limits=(Product(columns=columns, low=low, high=high),),
    )


@pytest.mark.null
@pytest.mark.parametrize(
    ("low", "high", "extents"),
    [(6, 10, (15, 4)), (7, 7, (14, 3)), (28, 40, (45, 30)), (5, 6, (7, 18)), (9, 13, (11, 5, 4))],
)
@ATOMIC
def test_a_product_within_bounds_is_seen_exactly(
    low: int, high: int, extents: tuple[int, ...], atomic: bool
) -> None:
    # Factors that the extents do not have cannot fill the gap between least and most.
    space = bounded(low, high, *extents)
    every = np.array(list(itertools.product(*(slot.table for slot in space.slots))))
    every = every.reshape(len(every), -1)
    legal = every[space.legal(every)]
    assert 0 < len(legal) < len(every)
    grammar = replace(grammar_for(space), atomic=atomic)
    rows, dead = write(SketchDecoder(space, grammar, 2000), np.random.default_rng(1))
    assert not dead.any() and space.legal(rows).all()
    assert refused_answers(space, grammar, legal) == 0


@pytest.mark.null
def test_a_product_that_nothing_reaches_is_a_dead_end_at_once() -> None:
    space = bounded(11, 12, 15, 7)
    turn = SketchDecoder(space, grammar_for(space), 3).turn()
    assert turn.asked.all() and not turn.allowed.any()


@pytest.mark.null
def test_shared_memory_masks_parts_that_do_not_fit() -> None:
    staged = StagedBuffer(dimensions=(Dimension(terms=((1, (1, 2)),), cap=64),), element_bytes=4)
    space = DecisionSpace(
        sketch=Sketch(dialect="metaschedule", body="[]", slots=()),
        slots=(Tile(column=0, extent=64, parts=3, limit=-1),),
        limits=(SharedMemory(buffers=(staged,), limit=32),),
    )
    turn = SketchDecoder(space, grammar_for(space), 1).turn()
    assert np.flatnonzero(turn.allowed[0]).tolist() == [3, 4, 5, 6]  # at most 8 of 64 inside
    rows, dead = write(SketchDecoder(space, grammar_for(space), 500), np.random.default_rng(2))
    assert not dead.any() and space.legal(rows).all()


def log_probabilities(space: DecisionSpace, rows: Ints, *, corrected: bool) -> Floats64:
    """Of programs drawn by the number of completions that each answer leaves of its tile."""
    grammar = grammar_for(space)
    written = grammar.write(rows)
    decoder = SketchDecoder(space, grammar, len(rows))
    total = np.zeros(len(rows))
    for k, question in enumerate(grammar.questions):
        turn, hole = decoder.turn(), grammar.holes[question.hole]
        logits = turn.correction.copy() if corrected else np.zeros(turn.allowed.shape)
        if hole.kind == TILE:
            after = hole.parts - 1 - question.part
            for program, most in enumerate(written.options[:, k].astype(int) - 1):
                ways = [math.comb(most - e + after - 1, after - 1) for e in range(most + 1)]
                logits[program, : most + 1] += np.log(ways)
        logits[~turn.allowed] = -np.inf
        logits -= np.logaddexp.reduce(logits, axis=1, keepdims=True)
        mine = written.answers[:, k].astype(np.int64)
        total += np.where(turn.asked, logits[np.arange(len(rows)), mine], 0.0)
        decoder.push(mine)
    return total


def unevenness(logs: Floats64) -> float:
    """Total variation from uniform."""
    share: npt.NDArray[np.float64] = np.exp(logs)
    assert share.sum() == pytest.approx(1.0)  # nothing is lost in dead ends
    return float(np.abs(share - 1 / len(share)).sum() / 2)


@pytest.mark.null
@pytest.mark.parametrize(("extent", "limit"), [(64, 4), (48, 3), (360, 8), (49, 7)])
def test_the_correction_makes_tiles_uniform(extent: int, limit: int) -> None:
    tile = Tile(column=0, extent=extent, parts=4, limit=limit)
    space = DecisionSpace(sketch=Sketch(dialect="metaschedule", body="[]", slots=()), slots=(tile,))
    assert unevenness(log_probabilities(space, tile.table, corrected=True)) < 1e-9
    assert unevenness(log_probabilities(space, tile.table, corrected=False)) > 0.05


@pytest.mark.null
def test_whole_numbers_are_corrected_as_their_exponents_are() -> None:
    tile = Tile(column=0, extent=64, parts=4, limit=4)
    space = DecisionSpace(sketch=Sketch(dialect="metaschedule", body="[]", slots=()), slots=(tile,))
    factored = SketchDecoder(space, grammar_for(space), 1)
    whole = SketchDecoder(space, replace(grammar_for(space), atomic=True), 1)
    for exponent in (2, 1, 0):
        ids = number_answers(2 ** np.arange(7))
        mine, theirs = whole.turn(), factored.turn()
        assert np.array_equal(mine.allowed[0, ids], theirs.allowed[0, :7])
        held = theirs.allowed[0, :7]
        np.testing.assert_allclose(mine.correction[0, ids][held], theirs.correction[0, :7][held])
        assert mine.allowed.sum() == held.sum()
        whole.push(ids[[exponent]])
        factored.push(np.array([exponent]))


@pytest.mark.null
@SPACES
def test_corrected_draws_are_closer_to_uniform_over_legal_programs(space: DecisionSpace) -> None:
    every = every_row(space)
    legal = every[space.legal(every)]
    plain, corrected = (
        unevenness(log_probabilities(space, legal, corrected=use)) for use in (False, True)
    )
    assert corrected < 0.9 * plain


@pytest.mark.null
def test_sketches_side_by_side_are_written_as_each_alone() -> None:
    short = bounded(6, 10, 15, 4)
    spaces = [small_space(), short, small_space(limited=True)]
    together = Decoder([SketchDecoder(space, grammar_for(space), 7) for space in spaces])
    alone = [SketchDecoder(space, grammar_for(space), 7) for space in spaces]
    streams = [np.random.default_rng(k) for k in range(3)]
    replies = [np.random.default_rng(k) for k in range(3)]
    assert together.n == 7
    while not together.done:
        answers = []
        for k, turn in enumerate(together.turns()):
            assert (turn is None) == alone[k].done
            if turn is None:
                answers.append(np.zeros(7, np.int64))
                continue
            mine = alone[k].turn()
            for name in ("asked", "words", "allowed", "correction"):
                assert np.array_equal(getattr(turn, name), getattr(mine, name)), name
            answers.append(answer(turn, streams[k]))
            alone[k].push(answer(mine, replies[k]))
        together.push(answers)
    for decoder, rows in zip(alone, together.rows(), strict=True):
        assert decoder.done and np.array_equal(decoder.rows(), rows)


@pytest.mark.null
def test_a_sketch_without_decisions_is_written_at_once() -> None:
    sketch = Sketch(dialect="metaschedule", body="[]", slots=())
    for slots in ((), (Choice(column=0, options=(4,), purpose=""),)):
        space = DecisionSpace(sketch=sketch, slots=slots)
        decoder = SketchDecoder(space, grammar_for(space), 2)
        assert decoder.done and decoder.rows().tolist() == [[0] * len(slots)] * 2


# -- real tasks -----------------------------------------------------------------------------------

CPU = Target.from_json('{"kind":"llvm","mcpu":"skylake-avx512","num-cores":2}')
REAL = {
    "llvm": ("matmul_divide", "conv2d_add_relu", "softmax", "max_pool2d"),
    "cuda": ("matmul_divide", "conv2d_add_relu", "softmax", "take"),
}


def listed(kind: str) -> list[ListedTask]:
    return [task for task in read_tasks(TASKS) if task.kind == kind]


def check_space(task: ListedTask, space: DecisionSpace) -> float:
    """Share of random answers that ran into a dead end."""
    rng = np.random.default_rng(7)
    any_row = np.zeros(space.n_columns, np.int64)
    for slot in space.slots:
        if isinstance(slot, Tile):
            any_row[slot.column : slot.column + slot.width] = slot.table[0]
    grammar = grammar_of(task.workload, space.sketch, any_row)
    known = space.sample(100, rng)
    assert refused_answers(space, grammar, known) == 0
    decoder = SketchDecoder(space, grammar, 100)
    rows, dead = write(decoder, rng)
    rows = rows[~dead]
    assert space.inside(rows).all()
    # What only TVM decides is asked at the end: its own verdicts, regions that are not affine.
    by_arithmetic = [
        limit
        for limit in space.limits
        if isinstance(limit, Product) or (isinstance(limit, SharedMemory) and limit.is_exact)
    ]
    assert replace(space, limits=tuple(by_arithmetic)).legal(rows).all()
    if len(by_arithmetic) == len(space.limits):
        assert space.legal(rows).all()
    return float(dead.mean())


def check_tasks(tasks: list[ListedTask]) -> list[float]:
    """Share of dead ends by sketch whose threads and shared memory are both bounded."""
    tvm, crowded = import_tvm(), []
    for task in tasks:
        target = cuda_target() if task.kind == "cuda" else CPU
        for space in task_space(tvm.ir.load_json(task.workload.module), target).sketches:
            if space.covered:
                dead = check_space(task, space)
                if any(isinstance(limit, SharedMemory) for limit in space.limits):
                    crowded.append(dead)
                else:
                    assert dead == 0
    return crowded


@pytest.mark.tvm
@pytest.mark.parametrize("kind", sorted(REAL))
def test_random_answers_on_real_tasks(kind: str) -> None:
    tasks = listed(kind)
    picked = [next(task for task in tasks if task.name == name) for name in REAL[kind]]
    crowded = check_tasks(picked)
    assert all(dead <= 0.05 for dead in crowded)
    assert bool(crowded) == (kind == "cuda")


@pytest.mark.tvm
@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(REAL))
def test_random_answers_on_many_real_tasks(kind: str) -> None:
    crowded = check_tasks(listed(kind)[::24])
    # A depthwise convolution on a GPU: bytes want small tiles where threads want large ones.
    assert np.mean(crowded or [0.0]) < 0.05 and max(crowded, default=0.0) < 0.5
