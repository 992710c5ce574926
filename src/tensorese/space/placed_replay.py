"""Replay that moves blocks where a row puts them, without TVM's search for where they may go.

`SampleComputeLocation` tries every loop of a consumer, whatever was decided: two thirds of the
time it takes to replay a convolution on a CPU. Of a row known to be legal the answer is known.
The blocks are moved by hand, and the trace is written as if TVM had sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tensorese.space.slots import INLINE, ROOT
from tensorese.space.tiles import SpaceError

OutputPlace: TypeAlias = tuple[int, int]
"""An instruction and which of its outputs."""

SAMPLE = "SampleComputeLocation"


@dataclass(frozen=True, kw_only=True)
class Placing:
    """What is left of a sketch from its first location on."""

    first: int
    steps: tuple[tuple[int, str, Any, OutputPlace], ...]
    """`(index, kind, instruction, block)`: the block is where an earlier instruction put it."""

    def finish(self, tvm: Any, schedule: Any, decided: Mapping[int, int]) -> None:
        """Applies the steps; TVM raises when a block cannot go there."""
        moves = _Moves(tvm, schedule)
        for index, kind, instruction, block in self.steps:
            getattr(moves, f"_{kind.lower()}")(index, instruction, block, decided)


def find_placing(instructions: Sequence[Any]) -> Placing | None:
    """None where there is nothing to gain, or where other steps are mixed in."""
    kinds = [str(one.kind.name) for one in instructions]
    if SAMPLE not in kinds:
        return None
    first = kinds.index(SAMPLE)
    steps = []
    for index in range(first, len(kinds)):
        if not hasattr(_Moves, f"_{kinds[index].lower()}"):
            return None
        instruction = instructions[index]
        block = _made_by(instructions[:index], instruction.inputs[0])
        if kinds[index] == "ComputeAt" and kinds[index - 1] != SAMPLE:
            return None
        steps.append((index, kinds[index], instruction, block))
    return Placing(first=first, steps=tuple(steps))


def _made_by(instructions: Sequence[Any], wanted: Any) -> OutputPlace:
    for index, instruction in enumerate(instructions):
        for place, output in enumerate(instruction.outputs):
            if output.same_as(wanted):
                return index, place
    raise SpaceError(f"an instruction must use what one before it made, but got {wanted}")


class _Moves:
    """One schedule on its way: a method for each kind of instruction that may come."""

    def __init__(self, tvm: Any, schedule: Any) -> None:
        self.tvm, self.schedule = tvm, schedule
        self.made: dict[OutputPlace, Any] = {}
        self.loop: Any = None
        self.location = ROOT

    def _variable(self, place: OutputPlace) -> Any:
        if place not in self.made:
            self.made[place] = self.schedule.trace.insts[place[0]].outputs[place[1]]
        return self.made[place]

    def _write(self, like: Any, inputs: list[Any], outputs: list[Any], decision: Any) -> None:
        """The instruction that TVM would have written."""
        written = type(like)(like.kind, inputs, like.attrs, outputs)
        self.schedule.trace.append(written, decision)

    def _samplecomputelocation(
        self, index: int, like: Any, place: OutputPlace, decided: Mapping[int, int]
    ) -> None:
        block = self._variable(place)
        self.location = decided[index]
        if self.location > ROOT:
            consumers = self.schedule.get_consumers(block)
            loops = self.schedule.get_loops(consumers[0]) if consumers else []
            for _ in range(1 + bool(consumers)):
                self.schedule.trace.pop()
            if self.location >= len(loops):
                raise ValueError(
                    f"a compute location must be one of {len(loops)} loops, "
                    f"but got {self.location}; the row is not legal"
                )
            self.loop = loops[self.location]
        else:
            self.loop = self.tvm.s_tir.schedule.LoopRV()
        decision = self.tvm.tirx.IntImm("int32", self.location)
        self._write(like, [block], [self.loop], decision)

    def _computeat(self, _: int, like: Any, place: OutputPlace, decided: Mapping[int, int]) -> None:
        block = self._variable(place)
        if self.location == ROOT:
            pass
        elif self.location == INLINE:
            self.schedule.compute_inline(block)
            self.schedule.trace.pop()
        else:
            preserve, at = like.attrs
            self.schedule.compute_at(
                block, self.loop, preserve_unit_loops=bool(preserve), index=int(at)
            )
            self.schedule.trace.pop()
        self._write(like, [block, self.loop], [], None)

    def _getproducers(
        self, index: int, like: Any, place: OutputPlace, _: Mapping[int, int]
    ) -> None:
        producers = self.schedule.get_producers(self._variable(place))
        self.made.update(((index, at), block) for at, block in enumerate(producers))

    def _unannotate(self, _: int, like: Any, place: OutputPlace, __: Mapping[int, int]) -> None:
        self.schedule.unannotate(self._variable(place), str(like.attrs[0]))
