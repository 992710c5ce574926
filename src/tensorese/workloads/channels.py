"""Shuffled channels, carried as a list of what they are instead of being moved.

ShuffleNet mixes the halves of its channels after every unit. TVM writes that as transposes and
reshapes in the layout the network came in, slower than the convolutions between them. Here every
tensor is known by where its channels are: a 1x1 convolution reads them in any order once its
weights are in that order too, a depthwise one gives them in the order it takes them. What remains
is one copy where channels of several tensors meet (`joined_channels.py`), of whole runs.
"""

from __future__ import annotations

from collections import defaultdict
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
_MOVING = {"relax.permute_dims", "relax.reshape", "relax.concat", "relax.split"}
_WINDOWS = {f"relax.nn.{name}" for name in ("conv2d", "max_pool2d", "avg_pool2d")}
_VECTOR = 16
_MOST_MISSING = 0.11  # of filters: 58 become 64


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

    def most(self) -> Any:
        """The tensor that has these channels and few others, if there is one."""
        source = self.sources[0]
        enough = len(self.numbers) * (1 + _MOST_MISSING) >= int(source.ty.shape[-1])
        once = len(set(self.numbers)) == len(self.numbers)
        return source if enough and once and all(one is source for one in self.sources) else None


def carry_channels(module: Any) -> Any:
    """The module itself where no channels are shuffled."""
    changed: list[Any] = []

    def rules(*arguments: Any) -> NetworkRewriter:
        return Carrier(changed, *arguments)

    made = rewritten(module, rules)
    return made if changed else module


class Carrier(NetworkRewriter):
    """Whatever is not understood reads its operands as they were: they are computed then."""

    def __init__(self, changed: list[Any], relax: Any, bindings: list[Any], output: Any) -> None:
        super().__init__(relax, bindings, output)
        self.changed = changed
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
        self.read_by: dict[Any, list[Any]] = defaultdict(list)
        """Old variable to the bindings that read it."""
        for binding in bindings:
            for read in relax.analysis.free_vars(binding.value):
                self.read_by[read].append(binding)
        self.returned = set(relax.analysis.free_vars(output))
        self.shuffles = any(
            name_of(one.value) == "relax.permute_dims" and len(one.value.ty.shape) == 5
            for one in bindings
        )
        self.names = {binding.value: binding.var for binding in bindings}
        self.harmless: dict[Any, bool] = {}
        """Old variable to whether only its channels are read."""

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
        if name_of(swapped) != "relax.permute_dims":
            return None
        apart: Any = self.made_by.get(swapped.args[0])
        if name_of(apart) != "relax.reshape":
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
                self.changed.append(call)
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
        if channels.mixed or not self.stands_alone(call, parts):
            return self.keep(self.as_it_is(call, arguments), channels)
        self.changed.append(call)
        return self.keep(self.moved(channels), channels)

    def stands_alone(self, call: Any, parts: Sequence[Any]) -> bool:
        """Whether TVM would make a kernel of this join and nothing else."""
        var = self.names.get(call)
        readers = {name_of(binding.value) for binding in self.read_by[var]}
        alone = var not in self.returned and readers <= _WINDOWS
        return alone and len(call.ty.shape) == 4 and all(map(self.computed, parts))

    def computed(self, x: Any) -> bool:
        """Whether x is a convolution's or a pool's, with what is fused behind that."""
        call: Any = self.made_by.get(x)
        if name_of(call) not in _CHANNELWISE:
            return name_of(call) in _WINDOWS | {"relax.call_tir"}
        return any(self.readers.get(one, 1) == 1 and self.computed(one) for one in call.args)

    def split_up(self, call: Any, arguments: list[Any]) -> Any:
        axis = int(call.attrs.axis) % len(call.args[0].ty.shape)
        channels = self.channels(arguments[0], axis)
        if channels is None:
            return None
        made = self.as_it_is(call, arguments)
        ends = np.cumsum([int(field.shape[axis]) for field in call.ty.fields]).tolist()
        begins = [0, *ends[:-1]]
        self.pieces[made] = [channels.of(range(*ends)) for ends in zip(begins, ends, strict=True)]
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
        if not plain or not self.is_constant(weight) or channels is None:
            return None
        groups, values = int(attrs.groups), weight.value.numpy()
        mixed, dtype = channels.mixed, str(weight.ty.dtype)
        if groups == 1:
            wider = self.missing(call, values.shape[3])
            if not mixed and not wider:
                return None
            x, places, width = self.unsorted(channels) if mixed else (x, None, 0)
            values = values if places is None else _spread(values, 2, places, width)
            values = np.pad(values, [(0, 0)] * 3 + [(0, wider)])
            made = self.convolved(call, x, self.constant(values, dtype))
            return self.in_order(made, range(values.shape[3] - wider)) if wider else made
        if not mixed:
            return None
        if not groups == values.shape[3] == len(channels.numbers):
            return self.convolved(call, self.moved(channels), weight)
        x, places, width = self.unsorted(channels)
        values = self.constant(_spread(values, 3, places, width), dtype)
        return self.in_order(self.convolved(call, x, values, groups=width), places)

    def missing(self, call: Any, filters: int) -> int:
        """How many filters of zeros make whole vectors, where nobody minds that they are there."""
        wider = -filters % _VECTOR
        few = self.shuffles and wider <= filters * _MOST_MISSING
        return wider if few and self.only_channels(self.names.get(call)) else 0

    def only_channels(self, var: Any) -> bool:
        """Whether nothing but what this class understands reads an old variable."""
        if var not in self.harmless:
            self.harmless[var] = var not in self.returned and all(
                self.understood(one.value) and (self.ends(one.value) or self.only_channels(one.var))
                for one in self.read_by[var]
            )
        return self.harmless[var]

    def ends(self, value: Any) -> bool:
        return name_of(value) == "relax.nn.conv2d" and int(value.attrs.groups) == 1

    def understood(self, value: Any) -> bool:
        if isinstance(value, self.relax.TupleGetItem) or name_of(value) in _MOVING:
            return True
        if name_of(value) in _CHANNELWISE:
            return sum(not self.is_constant(one) for one in value.args) == 1
        depthwise = name_of(value) == "relax.nn.conv2d" and self.is_constant(value.args[1])
        return depthwise and int(value.attrs.groups) in (1, int(value.args[1].ty.shape[3]))

    def convolved(self, call: Any, x: Any, weight: Any, groups: int | None = None) -> Any:
        if groups in (None, int(call.attrs.groups)):
            return self.emit(self.relax.Call(call.op, [x, weight], call.attrs, call.ty_args))
        attrs = call.attrs
        made = self.relax.op.nn.conv2d(
            x,
            weight,
            strides=[int(stride) for stride in attrs.strides],
            padding=[int(pixels) for pixels in attrs.padding],
            dilation=[int(pixels) for pixels in attrs.dilation],
            groups=groups,
            data_layout=str(attrs.data_layout),
            kernel_layout=str(attrs.kernel_layout),
            out_layout=str(attrs.out_layout),
            out_dtype=attrs.out_dtype,
        )
        return self.emit(made)

    def unsorted(self, channels: Channels) -> tuple[Any, list[int], int]:
        """A tensor with these channels in an order that costs least, where each is, and its
        width."""
        source = channels.most()
        if source is not None:
            return source, list(channels.numbers), int(source.ty.shape[3])
        order = channels.sorted()
        return self.moved(channels.of(order)), np.argsort(order).tolist(), len(order)

    def channelwise(self, call: Any, arguments: list[Any]) -> Any:
        """Computed on the tensor that has the channels, in its own order."""
        read = [one for one in arguments if not self.is_constant(one)]
        channels = self.channels(read[0], 3) if len(read) == 1 else None
        source = channels.most() if channels is not None and channels.mixed else None
        if channels is None or source is None:
            return None
        operands = []
        for one in arguments:
            shape = () if one is read[0] else _shape_of(one)
            if one is read[0]:
                one = source
            elif shape and shape[-1] != 1:
                if len(shape) not in (1, 4):
                    return None
                width = int(source.ty.shape[3])
                spread = _spread(one.value.numpy(), len(shape) - 1, channels.numbers, width)
                one = self.constant(spread, str(one.ty.dtype))
            operands.append(one)
        made = self.emit(self.relax.Call(call.op, operands, call.attrs, call.ty_args))
        return self.in_order(made, channels.numbers)

    def in_order(self, made: Any, places: Sequence[int]) -> Any:
        """The channels of `made` at these places; nothing is copied unless somebody reads it."""
        channels = Channels(
            sources=(made,) * len(places), numbers=tuple(places), axis=3, mixed=True
        )
        return self.keep(self.moved(channels), channels)

    def moved(self, channels: Channels) -> Any:
        """The tensor with these channels in this order."""
        most = channels.most()
        if most is not None and channels.numbers == tuple(range(int(most.ty.shape[3]))):
            return most
        key = (*channels.sources, *channels.numbers)
        if key not in self.joined:
            call = join(self.builder, channels.sources, channels.numbers)
            self.joined[key] = self.emit(call)
        return self.joined[key]


def _spread(values: Any, axis: int, places: Sequence[int], width: int) -> Any:
    """With slice i at places[i] along the axis, zeros elsewhere."""
    made = np.zeros((*values.shape[:axis], width, *values.shape[axis + 1 :]), values.dtype)
    made[(slice(None),) * axis + (list(places),)] = values
    return made


def _shape(call: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in call.ty.shape)


def _shape_of(x: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in x.ty.shape)
