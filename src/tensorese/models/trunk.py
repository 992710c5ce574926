"""The part of TLP that all platforms share: a program's rows in, one vector out.

Trunks behind one signature. `live` (ours): fixed rows are read once per sketch into a few
context tokens; only the rows that decisions reach are computed per program. `all`: ordinary
self-attention or an LSTM over every row. `paper`: as published, see `PaperTrunk`.
Shape legend: see `batch`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensorese.features.matrix import MatrixSpec
from tensorese.language.vocabulary import NAME_SLOTS, TYPE_SLOTS
from tensorese.models.batch import ProgramBatch, SketchTensors, all_numbers, live_numbers

WHOLE_TOKENS = 1 << 15


@dataclass(frozen=True, kw_only=True)
class TrunkConfig:
    """Sizes and switches; every switch is a row of the ablation table."""

    style: Literal["live", "all", "paper", "physics"] = "live"
    backbone: Literal["attention", "lstm"] = "attention"
    width: int = 64
    heads: int = 4
    layers: int = 1
    feed: int = 2
    """Hidden width of the per-row network after attention, in widths; 0 leaves it out."""
    blocks: int = 2
    """Residual blocks after the rows are summed."""
    context_tokens: int = 4
    dropout: float = 0.1
    noise: float = 0.3
    """Spread of noise on the numbers in training: neighbours should score alike."""
    physics_noise: float = 0.1
    """The same on what the tiling means for a machine."""
    mask: bool = True
    """Padding takes no part; without it (as published) it attends and is summed."""
    positions: bool = True
    knots: int = 0
    """Soft steps per physical feature: thresholds that need not be made of straight lines."""
    whole: bool = False
    """One token per primitive, hashed whole, instead of type, names and numbers (ablation)."""
    scale: float = 0.25
    """Factor on log2 numbers, so that inputs are of order one."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got {self.width}, {self.heads}")


def spread(per_sketch: Tensor, sketch_N: Tensor, training: bool) -> Tensor:
    """`per_sketch[sketch_N]`; in training as a product, whose gradient needs no sorting."""
    if len(per_sketch) == 1:
        return per_sketch.expand(len(sketch_N), *per_sketch.shape[1:])
    flat = per_sketch.flatten(1)
    if training:
        known = torch.arange(len(flat), device=flat.device)
        chosen = (sketch_N[:, None] == known).to(flat.dtype) @ flat
    else:
        chosen = flat[sketch_N]
    out: Tensor = chosen.view(-1, *per_sketch.shape[1:])
    return out


def _hot(ids: Tensor, table: nn.Embedding) -> Tensor:
    known = torch.arange(table.num_embeddings, device=ids.device)
    return (ids[..., None] == known).to(table.weight.dtype)


def attention(query: Tensor, key: Tensor, value: Tensor, allowed_NK: Tensor | None) -> Tensor:
    """Softmax attention written out: a few dozen rows, and it runs under `vmap` everywhere."""
    weight = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    if allowed_NK is not None:
        weight = weight.masked_fill(~allowed_NK[:, None, None, :], -3e4)
    mixed: Tensor = torch.softmax(weight.float(), dim=-1).to(value.dtype) @ value
    return mixed


class RowEncoder(nn.Module):
    """One row to one vector: type, names and position embedded, numbers projected, then mixed."""

    def __init__(self, config: TrunkConfig, spec: MatrixSpec) -> None:
        super().__init__()
        width = config.width
        self.scale = config.scale if spec.log else 1.0
        self.types = nn.Embedding(TYPE_SLOTS, width)
        self.names = nn.Embedding(NAME_SLOTS, width)
        self.positions = nn.Embedding(spec.length, width) if config.positions else None
        self.numbers = nn.Linear(spec.numbers, width)
        self.tokens = nn.Embedding(WHOLE_TOKENS, width) if config.whole else None
        self.mix = nn.Sequential(nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.out = nn.Linear(width, width)
        self.noise = config.noise
        for table in (self.types, self.names, self.positions):
            if table is not None:
                nn.init.normal_(table.weight, std=0.5)

    def constant(self, types_SL: Tensor, names_SLK: Tensor) -> Tensor:
        """`[S, L, D]`: the part of a row that only its sketch decides."""
        embedded: Tensor
        if self.training:  # as products, whose gradients need no sorting
            named = (_hot(names_SLK, self.names) * (names_SLK > 0)[..., None]).sum(-2)
            with torch.autocast(types_SL.device.type, enabled=False):
                embedded = _hot(types_SL, self.types) @ self.types.weight
                embedded = embedded + named @ self.names.weight
        else:
            embedded = self.types(types_SL)
            embedded = embedded + (self.names(names_SLK) * (names_SLK > 0)[..., None]).sum(-2)
        if self.positions is not None:
            embedded = embedded + self.positions.weight[: types_SL.shape[1]]
        return embedded

    def forward(self, constant: Tensor, numbers: Tensor) -> Tensor:
        if self.noise and self.training:
            numbers = numbers + self.noise * torch.randn_like(numbers) * (numbers != 0)
        if self.tokens is not None:
            constant = constant + self.tokens(self._whole(numbers))
            numbers = numbers * 0.0
        # Live rows use the first few columns only.
        weight = self.numbers.weight[:, : numbers.shape[-1]]
        hidden = constant + F.linear(numbers * self.scale, weight, self.numbers.bias)
        out: Tensor = hidden + self.out(self.mix(hidden))
        return out

    @staticmethod
    def _whole(numbers: Tensor) -> Tensor:
        """One token number from all numbers of a row; its type is embedded beside it."""
        odd = torch.arange(numbers.shape[-1], device=numbers.device) * 7919 + 104729
        mixed = ((numbers * 256).round().long() * odd).sum(-1)
        return mixed.remainder(WHOLE_TOKENS)


class Attention(nn.Module):
    """Pre-norm attention block; `told` adds keys and values that are read but not rewritten."""

    def __init__(self, config: TrunkConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.merge = nn.Linear(width, width)
        self.norm_feed = nn.LayerNorm(width)
        self.feed: nn.Module | None = None
        if config.feed:
            inner = config.feed * width
            self.feed = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        self.drop = nn.Dropout(config.dropout)

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], self.heads, x.shape[-1] // self.heads).transpose(1, 2)

    def attend(self, query: Tensor, key_value: Tensor, allowed: Tensor | None) -> Tensor:
        key, value = key_value.chunk(2, dim=-1)
        mixed = attention(self._split(query), self._split(key), self._split(value), allowed)
        merged: Tensor = self.merge(mixed.transpose(1, 2).flatten(2))
        return merged

    def forward(self, x: Tensor, told: Tensor | None, allowed: Tensor | None) -> Tensor:
        # Query, key and value in one product.
        weight = torch.cat([self.query.weight, self.key_value.weight])
        bias = torch.cat([self.query.bias, self.key_value.bias])
        fused, width = F.linear(self.norm(x), weight, bias), x.shape[-1]
        query, key_value = fused[..., :width], fused[..., width:]
        if told is not None:
            key_value = torch.cat([key_value, told], dim=1)
        x = x + self.drop(self.attend(query, key_value, allowed))
        return self.fed(x)

    def fed(self, x: Tensor) -> Tensor:
        if self.feed is None:
            return x
        out: Tensor = x + self.drop(self.feed(self.norm_feed(x)))
        return out


class Residuals(nn.Module):
    """The published x + ReLU(Linear x) blocks, with GELU and dropout."""

    def __init__(self, width: int, blocks: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + self.drop(F.gelu(layer(x)))
        return x


class PhysicsEncoder(nn.Module):
    """What the tiling means for a machine, as one more row."""

    def __init__(self, config: TrunkConfig, spec: MatrixSpec) -> None:
        super().__init__()
        self.count = spec.n_physics
        width = config.width
        self.scale, self.noise = config.scale, config.physics_noise
        self.knots: nn.Parameter | None = None
        if config.knots:
            self.knots = nn.Parameter(torch.rand(self.count, config.knots) * 14.0)
        wide = self.count * (1 + config.knots)
        self.net = nn.Sequential(
            *(nn.Linear(wide, 2 * width), nn.GELU(), nn.Dropout(config.dropout)),
            nn.Linear(2 * width, width),
        )

    def forward(self, values_NV: Tensor) -> Tensor:
        features = values_NV[:, : self.count]
        if self.noise and self.training:
            features = features + self.noise * torch.randn_like(features) * (features != 0)
        inputs = features * self.scale
        if self.knots is not None:
            steps = torch.tanh(features[..., None] - self.knots)
            inputs = torch.cat([inputs, steps.flatten(1)], dim=-1)
        out: Tensor = self.net(inputs)
        return out


class PhysicsTrunk(nn.Module):
    """No rows at all (ablation): how far do the physical features go alone?"""

    def __init__(self, config: TrunkConfig, spec: MatrixSpec) -> None:
        super().__init__()
        self.physics = PhysicsEncoder(config, spec)
        self.residuals = Residuals(config.width, config.blocks, config.dropout)

    def forward(self, batch: ProgramBatch) -> Tensor:
        out: Tensor = self.residuals(self.physics(batch.values_NV))
        return out


class LiveTrunk(nn.Module):
    """Per program only the live rows; what is constant in a sketch is summarised once."""

    def __init__(self, config: TrunkConfig, spec: MatrixSpec) -> None:
        super().__init__()
        self.rows = RowEncoder(config, spec)
        self.physics = PhysicsEncoder(config, spec) if spec.physics else None
        self.asked = nn.Parameter(torch.randn(config.context_tokens, config.width) * 0.5)
        self.summary = Attention(config)
        self.norm_context = nn.LayerNorm(config.width)
        self.layers = nn.ModuleList(Attention(config) for _ in range(config.layers))
        parts = 3 if spec.physics else 2
        self.pooled = nn.Linear(parts * config.width, config.width)
        self.residuals = Residuals(config.width, config.blocks, config.dropout)

    def context(self, constant_SLD: Tensor, s: SketchTensors) -> Tensor:
        """`[S, tokens, D]`: the fixed rows of each sketch, asked by learnt queries."""
        rows = self.summary.norm(self.rows(constant_SLD, s.numbers_SLW))
        asking = self.asked.expand(len(s), -1, -1)
        # A sketch may have no fixed row: let it see its (open) rows rather than nothing.
        allowed = s.fixed_SL | ~s.fixed_SL.any(1, keepdim=True)
        query, key_value = self.summary.query(asking), self.summary.key_value(rows)
        answer = asking + self.summary.attend(query, key_value, allowed)
        out: Tensor = self.norm_context(self.summary.fed(answer))
        return out

    def forward(self, batch: ProgramBatch) -> Tensor:
        s, training = batch.sketches, self.training
        constant_SLD = self.rows.constant(s.types_SL, s.names_SLK)
        context = self.context(constant_SLD, s)
        live = s.live_SR[..., None].expand(-1, -1, constant_SLD.shape[-1])
        constant_SRD = constant_SLD.gather(1, live)
        first = self.rows(spread(constant_SRD, batch.sketch_N, training), live_numbers(batch))
        beside: list[Tensor] = []
        if self.physics is not None:
            beside = [self.physics(batch.values_NV)]
            first = torch.cat([first, beside[0][:, None]], dim=1)
        real, allowed = self._masks(batch, context.shape[1])
        x = first
        for layer in self.layers:
            assert isinstance(layer, Attention)
            told = spread(layer.key_value(context), batch.sketch_N, training)
            x = layer(x, told, allowed)
        sums = torch.cat([_summed(first, real), _summed(x, real), *beside], dim=-1)
        around = spread(context.mean(1), batch.sketch_N, training)
        pooled: Tensor = self.residuals(self.pooled(sums) + around)
        return pooled

    def _masks(self, batch: ProgramBatch, tokens: int) -> tuple[Tensor | None, Tensor | None]:
        """Rows that are no padding, and what they may look at; None: all."""
        has_live = batch.sketches.has_live_SR
        if len(has_live) == 1 and not self.training and bool(has_live.all()):
            return None, None
        real = has_live[batch.sketch_N]
        if self.physics is not None:
            real = F.pad(real, (0, 1), value=True)
        return real, F.pad(real, (0, tokens), value=True)


def _summed(x: Tensor, real: Tensor | None) -> Tensor:
    """Rows added up, on a scale of about one."""
    return x.sum(1) / 4 if real is None else (x * (real[..., None].to(x.dtype) / 4)).sum(1)


class AllTrunk(nn.Module):
    """Every row of every program, by self-attention or an LSTM."""

    def __init__(self, config: TrunkConfig, spec: MatrixSpec) -> None:
        super().__init__()
        self.config = config
        self.rows = RowEncoder(config, spec)
        self.physics = PhysicsEncoder(config, spec) if spec.physics else None
        self.layers = nn.ModuleList()
        self.lstm: nn.LSTM | None = None
        if config.backbone == "lstm":
            self.lstm = nn.LSTM(config.width, config.width, batch_first=True)
        else:
            self.layers.extend(Attention(config) for _ in range(config.layers))
        self.residuals = Residuals(config.width, config.blocks, config.dropout)

    def forward(self, batch: ProgramBatch) -> Tensor:
        s = batch.sketches
        constant = self.rows.constant(s.types_SL, s.names_SLK)
        x = self.rows(spread(constant, batch.sketch_N, self.training), all_numbers(batch))
        real = s.real_SL[batch.sketch_N]
        if self.lstm is not None:
            last = real.sum(1).clamp(min=1) - 1
            states = self.lstm(x)[0]
            pooled: Tensor = states[torch.arange(len(x), device=x.device), last]
        else:
            for layer in self.layers:
                x = layer(x, None, real if self.config.mask else None)
            kept = x * real[..., None] if self.config.mask else x
            pooled = kept.sum(1) / 4
        if self.physics is not None:
            pooled = pooled + self.physics(batch.values_NV)
        out: Tensor = self.residuals(pooled)
        return out


class PaperTrunk(nn.Module):
    """As published: row MLP, one attention without norm, 2 residual blocks, no mask, no positions.

    Heads apply per position and are summed (`per_position`); types are one-hot.
    """

    def __init__(self, config: TrunkConfig, spec: MatrixSpec) -> None:
        super().__init__()
        sizes = [TYPE_SLOTS + spec.numbers, 64, 128, 256, 256]
        layers: list[nn.Module] = []
        for inner, outer in itertools.pairwise(sizes):
            layers += [nn.Linear(inner, outer), nn.ReLU()]
        self.encode = nn.Sequential(*layers)
        self.lstm = nn.LSTM(256, 256, batch_first=True) if config.backbone == "lstm" else None
        self.query_key_value = nn.Linear(256, 3 * 256)
        self.merge = nn.Linear(256, 256)
        self.blocks = nn.ModuleList(nn.Linear(256, 256) for _ in range(2))

    def forward(self, batch: ProgramBatch) -> Tensor:
        hot = F.one_hot(batch.sketches.types_SL, TYPE_SLOTS).float()
        hot = hot * batch.sketches.real_SL[..., None]
        x = self.encode(torch.cat([hot[batch.sketch_N], all_numbers(batch)], dim=-1))
        if self.lstm is not None:
            x = self.lstm(x)[0][:, -1:]
        else:
            parts = self.query_key_value(x).chunk(3, dim=-1)
            query, key, value = (p.reshape(*p.shape[:-1], 8, -1).transpose(1, 2) for p in parts)
            x = x + self.merge(attention(query, key, value, None).transpose(1, 2).flatten(2))
        for block in self.blocks:
            x = x + F.relu(block(x))
        out: Tensor = x
        return out


def make_trunk(config: TrunkConfig, spec: MatrixSpec) -> nn.Module:
    trunks = {"live": LiveTrunk, "all": AllTrunk, "paper": PaperTrunk, "physics": PhysicsTrunk}
    return trunks[config.style](config, spec)
