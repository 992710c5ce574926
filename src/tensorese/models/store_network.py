"""What torch networks on lowered programs share: a kind writes its network and its sizes.

A kind's file holds a frozen dataclass of sizes, an `nn.Module` whose
`forward(rows_BSF, mask_BS, coarse_BC)` gives `[B, platforms]`, and a `StoreModel` that names kind,
`config_class` and `body_class`. Rows arrive standardised and padded with zeros, `mask` is True
where a store is, and every program has at least one. The first word of a parameter's name is the
part it belongs to ("encoder", "head"), which is what training freezes by.
Shape legend: N programs, B programs at once, S stores of the longest, R rows of all programs,
F columns of a row, C of the coarse vector, P platforms.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tensorese.arrays import Floats32
from tensorese.features.base import Ragged, feature_set
from tensorese.features.lowered import COARSE, COLUMNS
from tensorese.models.base import LOWEST, Model, Tensors
from tensorese.models.network import TorchNetwork, built

BLOCK_ROWS = 8192
"""Padded rows at once when scoring: what a layer gives for them stays in a CPU's caches."""
OUTLIER = 8.0  # standard deviations: further out it is all the same
_COUNT_BITS = 20  # stores of a program fit into these
_LEAST = 1e-4  # of spread: a column that never varied says nothing


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreBatch:
    """Programs as places in the rows of all: what is picked is padded when it is read."""

    values_RF: Tensor
    starts_N: Tensor
    counts_N: Tensor
    coarse_NC: Tensor

    @classmethod
    def of(cls, ragged: Ragged) -> Self:
        starts = np.cumsum(ragged.counts) - ragged.counts
        return cls(
            values_RF=torch.from_numpy(np.ascontiguousarray(ragged.values)),
            starts_N=torch.from_numpy(starts),
            counts_N=torch.from_numpy(np.asarray(ragged.counts, dtype=np.int64)),
            coarse_NC=torch.from_numpy(np.ascontiguousarray(ragged.coarse)),
        )

    def __len__(self) -> int:
        return len(self.counts_N)

    def to(self, device: torch.device | str) -> Self:
        return type(self)(**{name: tensor.to(device) for name, tensor in vars(self).items()})

    def select(self, index: Tensor) -> Self:
        return type(self)(
            values_RF=self.values_RF,
            starts_N=self.starts_N[index],
            counts_N=self.counts_N[index],
            coarse_NC=self.coarse_NC[index],
        )

    def compact(self) -> Self:
        return self

    def distinct(self) -> tuple[Self, Tensor]:
        """Every program once, and where each of these is among them.

        Short groups of a training step are filled up with one program over and over: it would cost
        as much as the others, and count in the norms of a batch as often.
        """
        key_N = (self.starts_N << _COUNT_BITS) + self.counts_N
        known, place_N = torch.unique(key_N, return_inverse=True)
        number_N = torch.arange(len(self), device=place_N.device)
        first = torch.zeros(len(known), dtype=torch.int64, device=place_N.device)
        return self.select(first.scatter_(0, place_N, number_N)), place_N

    def padded(self) -> tuple[Tensor, Tensor]:
        """`[B, S, F]` and `[B, S]`; a program without rows is one row of zeros."""
        longest = max(1, int(self.counts_N.max())) if len(self) else 1
        place_S = torch.arange(longest, device=self.counts_N.device)
        real_BS = place_S < self.counts_N[:, None]
        if not len(self.values_RF):
            rows_BSF = self.values_RF.new_zeros(*real_BS.shape, self.values_RF.shape[1])
        else:
            at_BS = (self.starts_N[:, None] + place_S) * real_BS
            rows_BSF = self.values_RF[at_BS] * real_BS[..., None]
        return rows_BSF, real_BS | (place_S == 0)


class StoreNetwork(TorchNetwork):
    """Columns standardised, then the kind's body; the columns are logarithms already."""

    def __init__(self, body: nn.Module, config: Any, platforms: tuple[str, ...]) -> None:
        super().__init__()
        self.config, self.platforms = config, platforms
        self.body = body
        self._still: tuple[str, ...] = ()
        for level, columns in (("rows", COLUMNS), ("coarse", len(COARSE))):
            self.register_buffer(f"{level}_centre", torch.zeros(columns))
            self.register_buffer(f"{level}_scale", torch.ones(columns))

    def fit_columns(self, ragged: Ragged) -> None:
        """Mean and spread of these programs' columns, kept with the weights."""
        for level, values in (("rows", ragged.values), ("coarse", ragged.coarse)):
            centre, spread = values.mean(0, dtype=np.float64), values.std(0, dtype=np.float64)
            scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > _LEAST)
            self.get_buffer(f"{level}_centre").copy_(torch.from_numpy(centre))
            self.get_buffer(f"{level}_scale").copy_(torch.from_numpy(scale))

    def _standard(self, level: str, values: Tensor) -> Tensor:
        centred = values - self.get_buffer(f"{level}_centre")
        return (centred * self.get_buffer(f"{level}_scale")).clamp(-OUTLIER, OUTLIER)

    def forward(self, batch: StoreBatch) -> Tensor:
        """`[B, P, 2]`: the score, and a logit of failing that is always none."""
        if not self.training:
            return self._scores(batch)
        once, place_B = batch.distinct()
        scores = self._scores(once)
        return scores[place_B.to(scores.device)]

    def _scores(self, batch: StoreBatch) -> Tensor:
        where = self.get_buffer("rows_centre").device
        # Padded where the programs are: all of them need not fit on the network's device.
        rows_BSF, mask_BS = (tensor.to(where) for tensor in batch.padded())
        real_BS1 = mask_BS[..., None].to(rows_BSF.dtype)
        rows_BSF = self._standard("rows", rows_BSF) * real_BS1
        scores_BP = self.body(
            rows_BSF, mask_BS, self._standard("coarse", batch.coarse_NC.to(where))
        )
        return torch.stack([scores_BP, torch.zeros_like(scores_BP)], dim=-1)

    def freeze(self, parts: Iterable[str]) -> None:
        """These parts of the body stay as they are, statistics of their norms included."""
        self._still = tuple(parts)
        for name, part in self.body.named_children():
            part.requires_grad_(name not in self._still)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for name in self._still:
            self.body.get_submodule(name).eval()
        return self

    def parts(self) -> dict[str, list[nn.Parameter]]:
        """The body's parameters by the first word of their names."""
        parts: dict[str, list[nn.Parameter]] = {}
        for name, parameter in self.body.named_parameters():
            parts.setdefault(name.partition(".")[0], []).append(parameter)
        return parts


class StoreModel(Model):
    """A kind of network on lowered programs: subclasses name what differs."""

    config_class: ClassVar[type[Any]]
    body_class: ClassVar[type[nn.Module]]
    """Made from a config and the number of platforms."""

    def __init__(self, network: StoreNetwork) -> None:
        self.network = network
        self.platforms = network.platforms
        self.needs = feature_set("lowered")

    @classmethod
    def preset(cls, name: str) -> Any:
        """The sizes that `train --preset NAME` begins with."""
        return cls.config_class()

    @classmethod
    def new(cls, config: Any, platforms: tuple[str, ...]) -> Self:
        """With random weights, as torch's seed gives them."""
        return cls(StoreNetwork(cls.body_class(config, len(platforms)), config, platforms))

    def going_on(self, config: Any, heads: Mapping[str, str]) -> Self:
        """A copy whose platforms begin with these heads of this model; `config` says how it is
        trained, sizes are the same."""
        network = copy.deepcopy(self.network)
        rows = [self.head_index(old) for old in heads.values()]
        last = [part for part in network.body.get_submodule("head").modules()][-1]
        assert isinstance(last, nn.Linear)
        last.weight = nn.Parameter(last.weight[rows].clone())
        last.bias = nn.Parameter(last.bias[rows].clone())
        model = self.new(config, tuple(heads))
        model.network.load_state_dict(network.state_dict())
        return model

    @property
    def config(self) -> Any:
        return self.network.config

    def opinions(self, inputs: Ragged | StoreBatch, platform: str) -> Floats32:
        """`[N, 1]`: one voter, the same beside whatever other programs."""
        head = self.head_index(platform)
        batch = inputs if isinstance(inputs, StoreBatch) else StoreBatch.of(inputs)
        counts = batch.counts_N.cpu().numpy()
        scores = np.full(len(batch), LOWEST, dtype=np.float32)
        self.network.eval()
        with torch.inference_mode():
            for index in blocks(counts):
                chosen = batch.select(torch.from_numpy(index).to(batch.counts_N.device))
                scores[index] = self.network(chosen)[:, head, 0].float().cpu().numpy()
        return scores[:, None]

    def section(self) -> dict[str, Any]:
        return asdict(self.config)

    def tensors(self, *, half: bool) -> Tensors:
        learnt = {name for name, _ in self.network.named_parameters()}
        return {
            name: tensor.detach()
            .cpu()
            .numpy()
            .astype(np.float16 if half and name in learnt else np.float32)
            for name, tensor in self.network.state_dict().items()
        }

    @classmethod
    def build(
        cls, platforms: tuple[str, ...], section: Mapping[str, Any], tensors: Tensors
    ) -> Self:
        config = cls.config_class(**section)
        repeated = sum(int(getattr(config, name, 0)) for name in ("blocks", "steps"))
        network = built(lambda: cls.new(config, platforms).network, tensors, repeated)
        network.eval()
        return cls(network)


def blocks(counts: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Programs that have rows, those of like length together: little of a block is padding."""
    order = np.argsort(counts, kind="stable")
    order = order[counts[order] > 0]
    while len(order):
        # The longest of a block is its last: as many as fit with its length for all of them.
        ends = counts[order] * np.arange(1, len(order) + 1)
        fit = max(1, int(np.searchsorted(ends, BLOCK_ROWS, side="right")))
        yield order[:fit]
        order = order[fit:]
