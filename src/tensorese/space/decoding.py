"""Which answers of a sentence may come next: sentences of many sketches, written side by side.

An answer is offered only if a legal completion may follow, as far as arithmetic tells: every
limit on a product of tile parts is compared with the least and the most that the undecided parts
can still contribute. Products of finished tiles are carried along, nothing is recomputed. What
only TVM can decide is asked at the end (`DecisionSpace.legal`).

Shape legend: n programs of a sketch, E candidate exponents, or numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tensorese.arrays import Floats64, Ints
from tensorese.language.sentence import (
    ANSWERS,
    EXPONENT,
    OPTION,
    PLACE,
    Grammar,
    Hole,
    Progress,
    number_answers,
)
from tensorese.language.words import CHOICE, TILE, Words
from tensorese.space.decisions import DecisionSpace
from tensorese.space.limits import Dimension, Limit, Product, SharedMemory
from tensorese.space.slots import Tile
from tensorese.space.tiles import Bools, divisors, unique_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Turn:
    """What is asked of the `n` programs of one sketch; a program may have nothing to answer."""

    asked: Bools
    """`[n]`."""
    words: Words
    """`[n, fields]`."""
    allowed: Bools
    """`[n, answers]`; all False in a program that has no legal completion."""
    correction: Floats64
    """`[n, answers]`: log of the share of an answer's completions that the limits leave."""


class SketchDecoder:
    """`n` programs of one sketch: `turn`, then `push` the answers, until `done`."""

    def __init__(self, space: DecisionSpace, grammar: Grammar, n: int) -> None:
        self.space, self.grammar, self.n = space, grammar, n
        self._progress = Progress.start(grammar, n)
        self._question = 0
        self._groups: dict[tuple[int, ...], _Group] = {}
        self._rules = [self._rule(limit) for limit in _limits(space)]
        self._hole = -1

    @property
    def done(self) -> bool:
        return self._question >= len(self.grammar.questions)

    def turn(self) -> Turn:
        cap, words = self._progress.ask(self._question)
        hole = self.grammar.holes[self.grammar.questions[self._question].hole]
        self._enter(self.grammar.questions[self._question].hole)
        allowed = np.zeros((self.n, self.grammar.n_answers), dtype=np.bool_)
        correction = np.zeros(allowed.shape)
        if hole.kind == TILE:
            ids, held, state = self._numbers(hole) if self.grammar.atomic else self._exponents(cap)
            for rule in self._rules:
                if rule.concerns(hole):
                    held &= rule.reachable(state)
            allowed[:, ids] = held
            if hole.limit >= 0:
                correction[:, ids] = _shares(hole, state)
        elif hole.kind == CHOICE:
            allowed[:, OPTION : OPTION + hole.extent] = True
        else:
            mask = self.space.locators[hole.column].mask(self._progress.rows())
            width = min(mask.shape[1], ANSWERS - PLACE)
            allowed[:, PLACE : PLACE + width] = mask[:, :width]
        return Turn(asked=cap > 0, words=words, allowed=allowed, correction=correction)

    def push(self, answers: Ints) -> None:
        """`[n]`; of a program that was not asked it is ignored."""
        self._progress.push(self._question, answers.astype(np.int64))
        self._question += 1

    def rows(self) -> Ints:
        """`[n, columns]`: the programs, once done."""
        return self._progress.rows()

    # -- products ----------------------------------------------------------------------------

    def _rule(self, limit: Limit) -> _Rule:
        if isinstance(limit, Product):
            return _ProductRule(self._group(limit.columns), limit.low, limit.high)
        assert isinstance(limit, SharedMemory)
        buffers = []
        for buffer in limit.buffers:
            regions = [d for d in buffer.dimensions if isinstance(d, Dimension)]
            terms = [[(c, self._group(columns)) for c, columns in d.terms] for d in regions]
            size = buffer.element_bytes * buffer.copies
            buffers.append((size, list(zip(regions, terms, strict=True))))
        return _SharedRule(buffers, limit.limit)

    def _group(self, columns: Sequence[int]) -> _Group:
        key = tuple(sorted(set(columns)))
        if key not in self._groups:
            self._groups[key] = _Group(key, self.grammar.holes, self.n)
        return self._groups[key]

    def _enter(self, hole: int) -> None:
        if hole != self._hole:
            for group in self._groups.values():
                group.finish(hole, self._progress.rows())
            self._hole = hole

    def _exponents(self, cap: Ints) -> tuple[Ints, Bools, _Open]:
        """Answers, which of them divide what is left, and what each leaves."""
        question = self.grammar.questions[self._question]
        exponents = np.arange(int(cap.max(initial=0)) + 1)
        left = self._progress.left
        held = np.minimum(exponents, cap[:, None])
        taken = question.prime**held  # [n, E]
        later = left.copy()
        for prime in self.grammar.primes_of(question.hole):
            if prime <= question.prime:
                later //= prime ** self._progress.power(prime)
        return EXPONENT + exponents, exponents <= cap[:, None], self._open(taken, later)

    def _numbers(self, hole: Hole) -> tuple[Ints, Bools, _Open]:
        """Of whole numbers: nothing of the part at hand is decided later."""
        numbers = np.array(divisors(hole.extent), dtype=np.int64)
        left = self._progress.left
        held = left[:, None] % numbers == 0
        taken = np.where(held, numbers, 1)
        return number_answers(numbers), held, self._open(taken, np.ones_like(left))

    def _open(self, taken: Ints, later: Ints) -> _Open:
        question = self.grammar.questions[self._question]
        rest = (self._progress.left[:, None] // taken) // later[:, None]
        return _Open(
            hole=question.hole,
            rows=self._progress.rows(),
            part=question.part,
            taken=taken,
            decided=rest,
            later=np.broadcast_to(later[:, None], rest.shape),
        )


class Decoder:
    """Sentences of many sketches, tasks and platforms at once: one `SketchDecoder` each."""

    def __init__(self, parts: Sequence[SketchDecoder]) -> None:
        self.parts = parts

    @property
    def n(self) -> int:
        """Programs of each sketch; the same for all."""
        return self.parts[0].n

    @property
    def done(self) -> bool:
        return all(part.done for part in self.parts)

    def turns(self) -> list[Turn | None]:
        """By part; None for one whose sentences are complete."""
        return [None if part.done else part.turn() for part in self.parts]

    def push(self, answers: Sequence[Ints]) -> None:
        for part, mine in zip(self.parts, answers, strict=True):
            if not part.done:
                part.push(mine)

    def rows(self) -> list[Ints]:
        return [part.rows() for part in self.parts]


# -- limits while a tile is written ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class _Open:
    """The tile that is written: what a candidate exponent takes, and what it leaves to whom."""

    hole: int
    rows: Ints
    part: int
    taken: Ints
    """`[n, E]`: factor of the part at hand."""
    decided: Ints
    """`[n, E]`: left over of primes that the part at hand has decided: for later parts."""
    later: Ints
    """`[n, E]`: left over of primes still to come: for the part at hand or later ones."""


class _Group:
    """A product of columns, while they are written: `[n]` of the finished tiles, and bounds."""

    def __init__(self, columns: tuple[int, ...], holes: Sequence[Hole], n: int) -> None:
        self.columns = set(columns)
        self.holes = holes
        self.of = [self._mine(hole) for hole in holes]
        """By hole: which of its parts are columns of the product."""
        self.done = np.ones(n, dtype=np.int64)
        self.finished = 0

    def _mine(self, hole: Hole) -> frozenset[int]:
        if hole.kind != TILE:
            return frozenset()
        return frozenset(k for k in range(hole.parts) if hole.column + k in self.columns)

    def finish(self, hole: int, rows: Ints) -> None:
        """The holes before this one are complete."""
        for index in range(self.finished, hole):
            for part in self.of[index]:
                self.done = self.done * rows[:, self.holes[index].column + part]
        self.finished = max(self.finished, hole)

    def decided(self, state: _Open) -> Ints:
        """`[n, E]`: the product of what is decided."""
        mine, hole = self.of[state.hole], self.holes[state.hole]
        product = np.repeat(self.done[:, None], state.taken.shape[1], axis=1)
        for part in mine:
            if part <= state.part:
                product = product * state.rows[:, hole.column + part, None]
        return product * state.taken if state.part in mine else product

    def bounds(self, state: _Open) -> tuple[Ints, Ints]:
        """The least and the most the product can come to, `[n, E]`."""
        before, after = self._others(state.hole)
        mine, hole = self.of[state.hole], self.holes[state.hole]
        least = self.decided(state) * before
        most = least // before * after
        beyond = set(range(state.part + 1, hole.parts))
        from_here = {state.part, *beyond}
        for amount, parts in ((state.decided, beyond), (state.later, from_here)):
            if parts <= mine:
                least = least * amount
            if parts & mine:
                most = most * amount
        return least, most

    def _others(self, hole: int) -> tuple[int, int]:
        """The least and the most that later holes contribute."""
        least = most = 1
        for index in range(hole + 1, len(self.holes)):
            extent, parts = self.holes[index].extent, self.of[index]
            if parts:
                most *= extent
                least *= extent if len(parts) == self.holes[index].parts else 1
        return least, most

    def concerns(self, hole: Hole) -> bool:
        return any(hole.column + k in self.columns for k in range(hole.parts))


class _Rule(ABC):
    @abstractmethod
    def concerns(self, hole: Hole) -> bool: ...

    @abstractmethod
    def reachable(self, state: _Open) -> Bools:
        """`[n, E]`."""


class _ProductRule(_Rule):
    """Some product that the undecided parts can come to is within the bounds."""

    def __init__(self, group: _Group, low: int, high: int) -> None:
        self.group, self.low, self.high = group, low, high
        self._later: dict[int, Ints] = {}

    def concerns(self, hole: Hole) -> bool:
        return self.group.concerns(hole)

    def reachable(self, state: _Open) -> Bools:
        least, most = self.group.bounds(state)
        overlaps: Bools = (most >= self.low) & (least <= self.high)
        if self.low <= 1:  # then the least product is within them
            return overlaps
        at = np.nonzero(overlaps)
        left = np.stack([state.decided[at], state.later[at]], 1)
        product = self.group.decided(state)[at]
        unique, _, which = unique_rows(left)
        for k, (decided, later) in enumerate(unique.tolist()):
            mine = which == k
            factors = self._factors(state, decided, later)
            first = np.searchsorted(factors, -(-self.low // product[mine]))
            nearest = factors[np.minimum(first, len(factors) - 1)] * product[mine]
            overlaps[at[0][mine], at[1][mine]] = (nearest >= self.low) & (nearest <= self.high)
        return overlaps

    def _factors(self, state: _Open, decided: int, later: int) -> Ints:
        """All that the rest of this tile and the holes after it can multiply the product by."""
        if state.hole not in self._later:
            later_holes = np.ones(1, dtype=np.int64)
            for index in range(state.hole + 1, len(self.group.holes)):
                hole = self.group.holes[index]
                every = frozenset(range(hole.parts))
                later_holes = self._products(later_holes, hole.extent, every, index)
            self._later[state.hole] = later_holes
        beyond = frozenset(range(state.part + 1, self.group.holes[state.hole].parts))
        factors = self._products(self._later[state.hole], decided, beyond, state.hole)
        return self._products(factors, later, beyond | {state.part}, state.hole)

    def _products(self, factors: Ints, amount: int, parts: frozenset[int], hole: int) -> Ints:
        """With an amount that is dealt out to these parts of a hole; none above the bound."""
        mine = self.group.of[hole] & parts
        if not mine or amount == 1:
            return factors
        shares = np.array([amount] if mine == parts else divisors(amount), dtype=np.int64)
        products = np.unique(factors[:, None] * shares)
        return products[: max(1, int(np.searchsorted(products, self.high, "right")))]


class _SharedRule(_Rule):
    """Bytes of the staged regions at the least, which only grow with a part."""

    def __init__(
        self,
        buffers: list[tuple[int, list[tuple[Dimension, list[tuple[int, _Group]]]]]],
        limit: int,
    ) -> None:
        self.buffers, self.limit = buffers, limit

    def concerns(self, hole: Hole) -> bool:
        return any(
            group.concerns(hole)
            for _, dimensions in self.buffers
            for _, terms in dimensions
            for _, group in terms
        )

    def reachable(self, state: _Open) -> Bools:
        total = np.zeros(state.taken.shape, dtype=np.int64)
        for size, dimensions in self.buffers:
            bytes_ = np.full(state.taken.shape, size, dtype=np.int64)
            for dimension, terms in dimensions:
                extent = np.full(state.taken.shape, dimension.base, dtype=np.int64)
                for coefficient, group in terms:
                    extent += coefficient * (group.bounds(state)[0] - 1)
                bytes_ *= np.minimum(extent, dimension.cap)
            total += bytes_
        fits: Bools = total <= self.limit
        return fits


def _limits(space: DecisionSpace) -> list[Limit]:
    """What arithmetic decides: the target's limits, and the last part's of each tile."""
    inner: list[Limit] = [
        Product(columns=(slot.column + slot.width - 1,), low=1, high=slot.limit)
        for slot in space.slots
        if isinstance(slot, Tile) and slot.limit >= 0
    ]
    known = (Product, SharedMemory)
    return inner + [limit for limit in space.limits if isinstance(limit, known)]


def _shares(hole: Hole, state: _Open) -> Floats64:
    """`[n, E]`: log of how much of an answer's completions the last part's limit leaves."""
    after = hole.parts - 1 - state.part
    pairs = np.stack([state.decided.reshape(-1), state.later.reshape(-1)], 1)
    unique, _, which = unique_rows(pairs)
    logs = np.array([_log_share(a, b, after, hole.limit) for a, b in unique.tolist()])
    shares: Floats64 = logs[which].reshape(state.decided.shape)
    return shares


@lru_cache(maxsize=1 << 16)
def _log_share(decided: int, later: int, after: int, limit: int) -> float:
    """Of all ways to hand `decided` to the `after` parts that come and `later` to those or the part
    at hand, how many keep the last part within the limit."""
    every = kept = 0
    for here in divisors(later):
        rest = decided * (later // here)
        every += _ways(rest, after)
        kept += sum(_ways(rest // last, after - 1) for last in divisors(rest) if last <= limit)
    return math.log(kept / every) if kept else -math.inf


@lru_cache(maxsize=1 << 16)
def _ways(number: int, parts: int) -> int:
    """Ordered products of so many parts."""
    if parts <= 1:
        return 1 if parts or number == 1 else 0
    ways, left, prime = 1, number, 2
    while left > 1:
        if prime * prime > left:
            prime = left
        power = 0
        while left % prime == 0:
            left //= prime
            power += 1
        ways *= math.comb(power + parts - 1, parts - 1)
        prime += 1
    return ways
