"""What torch networks share: programs as tensors, and what a network gives for them.

Sketches are stacked once; a program is the index of its sketch and a row of values.
Shape legend: S sketches, L rows, K name columns, W number columns, R live rows, C of their number
columns, V values, N programs, D width, H heads, M members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tensorese.features.matrix import Template
from tensorese.features.programs import Encoded
from tensorese.models.base import ModelError, Tensors


class Batch(Protocol):
    """Programs as a network reads them: what the training loop does with them."""

    def __len__(self) -> int: ...

    def to(self, device: torch.device | str) -> Self: ...

    def select(self, index: Tensor) -> Self: ...

    def compact(self) -> Self:
        """The same programs without what only others need."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class SketchTensors:
    """Stacked templates. Live rows (those a decision reaches) are listed apart from fixed ones."""

    types_SL: Tensor
    names_SLK: Tensor
    numbers_SLW: Tensor
    source_SLW: Tensor
    """Which value fills the cell, counted from 1; 0 where the cell is constant."""
    real_SL: Tensor
    fixed_SL: Tensor
    live_SR: Tensor
    """Row numbers of the live rows, padded with 0."""
    has_live_SR: Tensor
    live_numbers_SRC: Tensor
    """The live rows' constant cells, as far as any of them has a number."""
    live_source_SRC: Tensor

    def __len__(self) -> int:
        return len(self.types_SL)

    def to(self, device: torch.device | str) -> SketchTensors:
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self)}
        return SketchTensors(**moved)

    def pick(self, index: Tensor) -> SketchTensors:
        return SketchTensors(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


@dataclass(frozen=True, kw_only=True, eq=False)
class ProgramBatch:
    """Programs of any sketches: `sketch_N` points into `sketches`."""

    sketches: SketchTensors
    sketch_N: Tensor
    values_NV: Tensor

    def __len__(self) -> int:
        return len(self.sketch_N)

    def compact(self) -> ProgramBatch:
        """The same programs with only the sketches they use: fixed rows are read once each."""
        used, inverse = torch.unique(self.sketch_N, return_inverse=True)
        return ProgramBatch(
            sketches=self.sketches.pick(used), sketch_N=inverse, values_NV=self.values_NV
        )

    def select(self, index: Tensor) -> ProgramBatch:
        return ProgramBatch(
            sketches=self.sketches,
            sketch_N=self.sketch_N[index],
            values_NV=self.values_NV[index],
        )

    def to(self, device: torch.device | str) -> ProgramBatch:
        return ProgramBatch(
            sketches=self.sketches.to(device),
            sketch_N=self.sketch_N.to(device),
            values_NV=self.values_NV.to(device),
        )


def stack_templates(templates: Sequence[Template]) -> SketchTensors:
    """One `SketchTensors` of all templates; they must share a spec."""
    source = np.zeros((len(templates), *templates[0].numbers.shape), dtype=np.int64)
    n_live = max(1, *(len(t.live) for t in templates))
    live = np.zeros((len(templates), n_live), dtype=np.int64)
    has_live = np.zeros((len(templates), n_live), dtype=bool)
    real = np.stack([t.mask for t in templates])
    fixed = real.copy()
    for k, template in enumerate(templates):
        row, column, value = template.cells.T
        source[k, row, column] = value + 1
        rows = template.live
        live[k, : len(rows)] = rows
        has_live[k, : len(rows)] = True
        fixed[k, rows] = False
    numbers = np.stack([t.numbers for t in templates])
    live_numbers = np.take_along_axis(numbers, live[:, :, None], axis=1) * has_live[:, :, None]
    live_source = np.take_along_axis(source, live[:, :, None], axis=1) * has_live[:, :, None]
    used = np.flatnonzero((live_numbers != 0).any((0, 1)) | (live_source != 0).any((0, 1)))
    columns = int(used.max(initial=0)) + 1
    return SketchTensors(
        types_SL=torch.from_numpy(np.stack([t.types for t in templates]).astype(np.int64)),
        names_SLK=torch.from_numpy(np.stack([t.names for t in templates]).astype(np.int64)),
        numbers_SLW=torch.from_numpy(numbers),
        source_SLW=torch.from_numpy(source),
        real_SL=torch.from_numpy(real),
        fixed_SL=torch.from_numpy(fixed),
        live_SR=torch.from_numpy(live),
        has_live_SR=torch.from_numpy(has_live),
        live_numbers_SRC=torch.from_numpy(live_numbers[:, :, :columns].copy()),
        live_source_SRC=torch.from_numpy(live_source[:, :, :columns].copy()),
    )


def live_numbers(batch: ProgramBatch) -> Tensor:
    """`[N, R, C]`: the live rows' numbers with the programs' values in their holes."""
    return _fill(batch.sketches.live_numbers_SRC, batch.sketches.live_source_SRC, batch)


def all_numbers(batch: ProgramBatch) -> Tensor:
    """`[N, L, W]`: every row, as a model without our shortcut reads it."""
    return _fill(batch.sketches.numbers_SLW, batch.sketches.source_SLW, batch)


def _fill(constant_SRW: Tensor, source_SRW: Tensor, batch: ProgramBatch) -> Tensor:
    values = torch.nn.functional.pad(batch.values_NV, (1, 0))
    if len(source_SRW) == 1:
        return constant_SRW + values[:, source_SRW[0]]
    source = source_SRW[batch.sketch_N]
    filled = values.gather(1, source.flatten(1)).view(source.shape)
    return constant_SRW[batch.sketch_N] + filled


Network = TypeVar("Network", bound=nn.Module)


def built(make: Callable[[], Network], tensors: Tensors, parts: int) -> Network:
    """The network with these weights. Their shapes are compared with those of a network without
    memory first; `parts` are its repeated modules, of which each has weights of its own."""
    if not 0 <= parts <= len(tensors):
        raise ModelError(f"{len(tensors)} tensors are no weights of {parts} repeated modules")
    with torch.device("meta"):
        wanted = {name: tuple(tensor.shape) for name, tensor in make().state_dict().items()}
    if wanted != {name: tensor.shape for name, tensor in tensors.items()}:
        raise ModelError("the config's sizes must be those of the weights, but they differ")
    network = make()
    network.load_state_dict({name: torch.from_numpy(np.array(t)) for name, t in tensors.items()})
    return network


class TorchNetwork(nn.Module):
    """`forward` gives `[N, H, 2 * M]`: rank score and logit of failing of each member by head."""

    config: Any
    """A frozen dataclass: a run resumes with an equal one only."""
    platforms: tuple[str, ...]
    """One head each."""


def as_batch(encoded: Encoded) -> ProgramBatch:
    return ProgramBatch(
        sketches=stack_templates(encoded.templates),
        sketch_N=torch.from_numpy(encoded.pair),
        values_NV=torch.from_numpy(encoded.values),
    )


def outputs_of(network: TorchNetwork, batch: ProgramBatch, head: int, chunk: int) -> Tensor:
    """`[N, M, 2]` in float32 on the CPU, of one head."""
    network.eval()
    place = next(network.parameters()).device
    parts = []
    with torch.inference_mode():
        for index in torch.split(torch.arange(len(batch)), chunk):
            outputs_NHM = network(batch.select(index).compact().to(place))
            parts.append(outputs_NHM[:, head].unflatten(-1, (-1, 2)).float().cpu())
    return torch.cat(parts) if parts else torch.zeros(0, 1, 2)
