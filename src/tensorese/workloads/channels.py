"""Shuffled channels, carried as a list of what they are instead of being moved.

ShuffleNet mixes the halves of its channels after every unit. TVM writes that as transposes and
reshapes in the layout the network came in, slower than the convolutions between them. Here every
tensor is known by where its channels are: a 1x1 convolution reads them in any order once its
weights are in that order too, a depthwise one gives them in the order it takes them. What remains
is one copy where channels of several tensors meet (`joined_channels.py`), of whole runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorese.workloads.affine import name_of
from tensorese.workloads.joined_channels import join
from tensorese.workloads.simplify import NetworkRewriter, rewritten

_FIRST, _LAST = [0, 3, 1, 2], [0, 2, 3, 1]
_CHANNELWISE = {
    *("relax.nn.relu", "relax.add", "relax.multiply", "relax.maximum", "relax.minimum"),
}


@dataclass(frozen=True, kw_only=True)
class Channels:
    """Where the channels of a tensor are: in which others, whose channels are innermost."""

    sources: tuple[Any, ...]
    numbers: tuple[int, ...]
    axis: int
    """Of this tensor."""
    mixed: bool = False
    """Whether they were shuffled on the way: everything else TVM does well."""

    def of(self, which: Sequence[int]) -> Channels:
        sources = tuple(self.sources[at] for at in which)
        return replace(self, sources=sources, numbers=tuple(self.numbers[at] for at in which))

    def sorted(self) -> list[int]:
        """An order in which the channels of each source follow each other."""
        first: dict[Any, int] = {}
        for source in self.sources:
            first.setdefault(source, len(first))
        return sorted(
            range(len(self.numbers)), key=lambda at: (first[self.sources[at]], self.numbers[at])
        )

    def whole(self) -> Any:
        """The tensor that has these channels and no others, if there is one."""
        source = self.sources[0]
        every = sorted(self.numbers) == list(range(int(source.ty.shape[-1])))
        return source if every and all(one is source for one in self.sources) else None


def carry_channels(module: Any) -> Any:
    """The module itself where no channels are shuffled."""
    shuffles: list[Any] = []

    def rules(*arguments: Any) -> NetworkRewriter:
        return Carrier(shuffles, *arguments)

    made = rewritten(module, rules)
    return made if shuffles else module


class Carrier(NetworkRewriter):
    """Whatever is not understood reads its operands as they were: they are computed then."""

    def __init__(self, shuffles: list[Any], relax: Any, bindings: list[Any], output: Any) -> None:
        super().__init__(relax, bindings, output)
        self.shuffles = shuffles
        """Convolutions that need none any more."""
        rules: dict[str, Callable[[Any, list[Any]], Any]] = {
            "relax.permute_dims": self.transposed,
            "relax.reshape": self.reshaped,
            "relax.concat": self.concatenated,
            "relax.split": self.split_up,
            "relax.nn.conv2d": self.convolution,
            **dict.fromkeys(_CHANNELWISE, self.channelwise),
        }
        self.rules = rules
        self.known: dict[Any, Channels] = {}
        self.pieces: dict[Any, list[Channels]] = {}
        """Of a split tensor."""
        self.joined: dict[tuple[Any, ...], Any] = {}

    def channels(self, x: Any, axis: int) -> Channels | None:
        """Those of `x` along `axis`; of an unknown tensor, if they are innermost, its own."""
        if x in self.known:
            return self.known[x] if self.known[x].axis == axis else None
        if not isinstance(x, self.relax.Var) or len(x.ty.shape) != 4 or axis != 3:
            return None
        count = int(x.ty.shape[3])
        return Channels(sources=(x,) * count, numbers=tuple(range(count)), axis=3)

    def keep(self, made: Any, channels: Channels | None) -> Any:
        if channels is not None:
            self.known[made] = channels
        return made

    # -- what only moves channels ---------------------------------------------------------

    def transposed(self, call: Any, arguments: list[Any]) -> Any:
        axes = [int(axis) for axis in call.attrs.axes or []]
        if axes not in (_FIRST, _LAST):
            return None
        old, new = (3, 1) if axes == _FIRST else (1, 3)
        channels = self.channels(arguments[0], old)
        moved = None if channels is None else replace(channels, axis=new)
        return self.keep(self.as_it_is(call, arguments), moved)

    def reshaped(self, call: Any, arguments: list[Any]) -> Any:
        """Channels in rows, read by columns."""
        swapped: Any = self.made_by.get(arguments[0])
        apart: Any = None if swapped is None else self.made_by.get(swapped.args[0])
        if name_of(swapped) != "relax.permute_dims" or name_of(apart) != "relax.reshape":
            return None
        x, five = apart.args[0], _shape(apart)
        order = [int(axis) for axis in swapped.attrs.axes or []]
        for axis in (1, 3):
            rest = [*range(axis), axis + 1, axis, *range(axis + 2, 5)]
            if len(five) != 5 or order != rest or _shape(call) != _shape_of(x):
                continue
            if _shape(call) != (*five[:axis], five[axis] * five[axis + 1], *five[axis + 2 :]):
                continue
            if channels := self.channels(x, axis):
                mixed = np.arange(len(channels.numbers)).reshape(five[axis], five[axis + 1])
                channels = replace(channels.of(mixed.T.flatten().tolist()), mixed=True)
                return self.keep(self.as_it_is(call, arguments), channels)
        return None

    def concatenated(self, call: Any, arguments: list[Any]) -> Any:
        parts = list(getattr(arguments[0], "fields", []))
        axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % len(call.ty.shape)
        known = [self.channels(part, axis) for part in parts]
        if not parts or any(one is None for one in known):
            return None
        each = [one for one in known if one is not None]
        channels = Channels(
            sources=sum((one.sources for one in each), ()),
            numbers=sum((one.numbers for one in each), ()),
            axis=axis,
            mixed=any(one.mixed for one in each),
        )
        return self.keep(self.as_it_is(call, arguments), channels)

    def split_up(self, call: Any, arguments: list[Any]) -> Any:
        axis = int(call.attrs.axis) % len(call.args[0].ty.shape)
        channels = self.channels(arguments[0], axis)
        if channels is None:
            return None
        made, begun, self_pieces = self.as_it_is(call, arguments), 0, []
        for field in call.ty.fields:
            ends = begun + int(field.shape[axis])
            self_pieces.append(channels.of(range(begun, ends)))
            begun = ends
        self.pieces[made] = self_pieces
        return made

    def rewrite(self, value: Any) -> Any:
        made = super().rewrite(value)
        if isinstance(value, self.relax.TupleGetItem):
            pieces = self.pieces.get(self.current(value.tuple_value))
            return self.keep(made, pieces[value.index] if pieces else None)
        return made

    # -- what reads them ------------------------------------------------------------------

    def convolution(self, call: Any, arguments: list[Any]) -> Any:
        x, weight = arguments
        attrs = call.attrs
        plain = str(attrs.data_layout) == "NHWC" and str(attrs.kernel_layout) == "HWIO"
        channels = self.channels(x, 3)
        if not plain or not self.is_constant(weight) or channels is None or not channels.mixed:
            return None
        groups, values = int(attrs.groups), weight.value.numpy()
        if groups != 1 and not groups == values.shape[3] == len(channels.numbers):
            return self.as_it_is(call, [self.moved(channels), weight])
        order = channels.sorted()
        values = values[:, :, order, :] if groups == 1 else values[..., order]
        operands = [self.moved(channels.of(order)), self.constant(values, str(weight.ty.dtype))]
        made = self.emit(self.relax.Call(call.op, operands, attrs, call.ty_args))
        self.shuffles.append(made)
        return made if groups == 1 else self.in_order(made, order)

    def channelwise(self, call: Any, arguments: list[Any]) -> Any:
        """Computed on the tensor that has the channels, in its own order."""
        read = [one for one in arguments if not self.is_constant(one)]
        channels = self.channels(read[0], 3) if len(read) == 1 else None
        source = channels.whole() if channels is not None and channels.mixed else None
        if channels is None or source is None:
            return None
        order = channels.sorted()
        operands = []
        for one in arguments:
            constant = self.is_constant(one)
            shape = _shape_of(one)
            if not constant:
                one = source
            elif shape and shape[-1] != 1:
                if len(shape) > 1 and len(shape) != 4:
                    return None
                one = self.constant(one.value.numpy()[..., order], str(one.ty.dtype))
            operands.append(one)
        return self.in_order(
            self.emit(self.relax.Call(call.op, operands, call.attrs, call.ty_args)), order
        )

    def in_order(self, made: Any, order: Sequence[int]) -> Any:
        """`made` has the channels sorted; nothing is copied unless somebody reads the result."""
        numbers = tuple(np.argsort(order).tolist())
        channels = Channels(sources=(made,) * len(order), numbers=numbers, axis=3, mixed=True)
        return self.keep(self.moved(channels), channels)

    def moved(self, channels: Channels) -> Any:
        """The tensor with these channels in this order."""
        whole = channels.whole()
        if whole is not None and channels.numbers == tuple(range(len(channels.numbers))):
            return whole
        key = (*channels.sources, *channels.numbers)
        if key not in self.joined:
            call = join(self.builder, channels.sources, channels.numbers)
            self.joined[key] = self.emit(call)
        return self.joined[key]


def _shape(call: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in call.ty.shape)


def _shape_of(x: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in x.ty.shape)
