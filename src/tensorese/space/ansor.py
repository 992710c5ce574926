"""An Ansor sketch as a space of wide rows, which is all that the decoder of sentences needs.

Nothing is replayed: Ansor left TVM, so `language.ansor_check` has the last word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorese.arrays import Ints
from tensorese.language.ansor_check import THREAD, VTHREAD, AnsorHardware, bound_loops
from tensorese.language.ansor_sentence import AnsorGrammar
from tensorese.language.sentence import Hole
from tensorese.language.words import CHOICE, TILE
from tensorese.records.nouns import Sketch
from tensorese.space.decisions import DecisionSpace
from tensorese.space.limits import Product
from tensorese.space.slots import INLINE, Choice, Location, Slot, Tile
from tensorese.space.tiles import Bools


@dataclass(frozen=True, kw_only=True)
class ListedPlaces:
    """Places known from other programs of the sketch."""

    places: tuple[int, ...]

    @property
    def width(self) -> int:
        return max(self.places) - INLINE + 1

    def mask(self, rows: Ints) -> Bools:
        offered = np.zeros((len(rows), self.width), dtype=np.bool_)
        offered[:, [place - INLINE for place in self.places]] = True
        return offered


def ansor_space(sketch: Sketch, grammar: AnsorGrammar, hardware: AnsorHardware) -> DecisionSpace:
    return DecisionSpace(
        sketch=sketch,
        slots=tuple(_slot(hole) for hole in grammar.grammar.holes),
        locators={
            column: ListedPlaces(places=places) for column, places in grammar.places().items()
        },
        limits=_thread_limits(sketch, grammar, hardware),
    )


def _slot(hole: Hole) -> Slot:
    if hole.kind == TILE:
        return Tile(column=hole.column, extent=hole.extent, parts=hole.parts, limit=hole.limit)
    if hole.kind == CHOICE:
        return Choice(column=hole.column, options=tuple(range(hole.extent)), purpose="")
    return Location(column=hole.column, instruction=-1)


def _thread_limits(
    sketch: Sketch, grammar: AnsorGrammar, hardware: AnsorHardware
) -> tuple[Product, ...]:
    """Every thread-bound loop once: stages of a kernel share them."""
    loops = bound_loops(sketch.body, sketch.slots)
    tiled = any(annotation == VTHREAD for annotation, _ in loops)
    limits = {}
    for annotation, form in loops:
        terms = form.terms if form is not None else {}
        columns = tuple(sorted(grammar.columns[column] for column in terms))
        if not columns or set(terms.values()) != {1.0}:
            continue
        low, high = 1, hardware.vthreads
        if annotation == THREAD:
            size = grammar.extents_of(columns)
            low = hardware.warp if tiled and size > 2 * hardware.warp else 1
            high = hardware.threads
        limits[annotation, columns] = Product(columns=columns, low=low, high=high)
    return tuple(limits.values())
