"""TLP and MTL-TLP: a schedule's primitives read as a language, programs of a task ranked.

Read from the top: configuration and presets, the parts (rows, attention, residual blocks, hardware
features), two trunks (ours, and the one the paper publishes), heads, the two kinds of model.
Ours computes per program only the rows that decisions reach; what is constant in a sketch is read
once into a few context tokens. TLP has one platform; MTL-TLP shares the trunk and has one head for
each, any of which may lack any label.
Shape legend: see `network`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensorese.arrays import Floats32
from tensorese.features.base import FeatureSet, version_of
from tensorese.features.context import context_of
from tensorese.features.matrix import Encoder, MatrixSpec, Template, paper_spec
from tensorese.features.physics import features_hash
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.language.vocabulary import NAME_SLOTS, TYPE_SLOTS, Vocabulary
from tensorese.models.base import Model, ModelError, Tensors, register
from tensorese.models.network import (
    ProgramBatch,
    SketchTensors,
    TorchNetwork,
    all_numbers,
    as_batch,
    built,
    live_numbers,
    outputs_of,
    stack_templates,
)
from tensorese.models.physics_net import opinions_of, speeds_of
from tensorese.records.nouns import Sketch, Workload

CHUNK = 256
"""Programs of one sketch at once: their live rows stay in a CPU's second cache."""
MIXED_CHUNK = 8192
SPREAD = 0.25
"""Factor on log2 numbers, so that inputs are of order one."""
PAPER_WIDTH = 256
NEVER = -99.0
"""Logit of failing of a network that was not taught it: no score is lowered."""

# ---- configuration ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TLPConfig:
    spec: MatrixSpec = field(default_factory=lambda: MatrixSpec(physics=False))
    """How programs are written as matrices; with `physics`, hardware features stand beside them."""
    style: Literal["live", "paper"] = "live"
    mixer: Literal["attention", "lstm"] = "attention"
    """What lets the rows of the published network see each other."""
    fails: bool = True
    """A second output learns which programs fail and lowers their scores; without it the rank
    output alone is the score."""
    members: int = 1
    """Networks in one model, started apart, trained side by side; their scores are averaged."""
    width: int = 64
    heads: int = 4
    """Of attention."""
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
    """The same on the hardware features."""
    knots: int = 6
    """Soft steps per hardware feature: thresholds that need not be made of straight lines."""

    def __post_init__(self) -> None:
        if self.heads < 1 or self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got {self.width}, {self.heads}")


def paper_config(machine: str) -> TLPConfig:
    """As published: a matrix of 25 x 22 for CPUs, 40 x 20 for GPUs, one output."""
    return TLPConfig(
        spec=paper_spec("cpu" if machine == "cpu" else "gpu"),
        style="paper",
        fails=False,
        width=PAPER_WIDTH,
        heads=8,
        dropout=0.0,
        noise=0.0,
        knots=0,
    )


# ---- parts --------------------------------------------------------------------------------------


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

    def __init__(self, config: TLPConfig) -> None:
        super().__init__()
        width, spec = config.width, config.spec
        self.scale = SPREAD if spec.log else 1.0
        self.types = nn.Embedding(TYPE_SLOTS, width)
        self.names = nn.Embedding(NAME_SLOTS, width)
        self.positions = nn.Embedding(spec.length, width)
        self.numbers = nn.Linear(spec.numbers, width)
        self.mix = nn.Sequential(nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.out = nn.Linear(width, width)
        self.noise = config.noise
        for table in (self.types, self.names, self.positions):
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
        return embedded + self.positions.weight[: types_SL.shape[1]]

    def forward(self, constant: Tensor, numbers: Tensor) -> Tensor:
        if self.noise and self.training:
            numbers = numbers + self.noise * torch.randn_like(numbers) * (numbers != 0)
        # Live rows use the first few columns only.
        weight = self.numbers.weight[:, : numbers.shape[-1]]
        hidden = constant + F.linear(numbers * self.scale, weight, self.numbers.bias)
        out: Tensor = hidden + self.out(self.mix(hidden))
        return out


class Attention(nn.Module):
    """Pre-norm attention block; `context` adds keys and values that are read, not rewritten."""

    def __init__(self, config: TLPConfig) -> None:
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

    def forward(self, x: Tensor, context: Tensor, allowed: Tensor | None) -> Tensor:
        # Query, key and value in one product.
        weight = torch.cat([self.query.weight, self.key_value.weight])
        bias = torch.cat([self.query.bias, self.key_value.bias])
        fused, width = F.linear(self.norm(x), weight, bias), x.shape[-1]
        query, key_value = fused[..., :width], fused[..., width:]
        key_value = torch.cat([key_value, context], dim=1)
        return self.fed(x + self.drop(self.attend(query, key_value, allowed)))

    def fed(self, x: Tensor) -> Tensor:
        if self.feed is None:
            return x
        out: Tensor = x + self.drop(self.feed(self.norm_feed(x)))
        return out


class Residuals(nn.Module):
    """The published x + ReLU(Linear x) blocks, with GELU and dropout."""

    def __init__(self, config: TLPConfig) -> None:
        super().__init__()
        width = config.width
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(config.blocks))
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + self.drop(F.gelu(layer(x)))
        return x


class PhysicsRow(nn.Module):
    """The hardware features of a program as one more row."""

    def __init__(self, config: TLPConfig) -> None:
        super().__init__()
        self.count = config.spec.n_physics
        width, wide = config.width, self.count * (1 + config.knots)
        self.noise = config.physics_noise
        self.knots = nn.Parameter(torch.rand(self.count, config.knots) * 14.0)
        self.net = nn.Sequential(
            *(nn.Linear(wide, 2 * width), nn.GELU(), nn.Dropout(config.dropout)),
            nn.Linear(2 * width, width),
        )

    def forward(self, values_NV: Tensor) -> Tensor:
        features_NF = values_NV[:, : self.count]
        if self.noise and self.training:
            jittered = torch.randn_like(features_NF) * (features_NF != 0)
            features_NF = features_NF + self.noise * jittered
        steps = torch.tanh(features_NF[..., None] - self.knots)
        out: Tensor = self.net(torch.cat([features_NF * SPREAD, steps.flatten(1)], dim=-1))
        return out


# ---- trunks: a program's rows in, one vector out ------------------------------------------------


class LiveTrunk(nn.Module):
    """Per program only the live rows; what is constant in a sketch is summarised once."""

    def __init__(self, config: TLPConfig) -> None:
        super().__init__()
        self.rows = RowEncoder(config)
        self.physics = PhysicsRow(config) if config.spec.physics else None
        self.queries = nn.Parameter(torch.randn(config.context_tokens, config.width) * 0.5)
        self.summary = Attention(config)
        self.norm_context = nn.LayerNorm(config.width)
        self.layers = nn.ModuleList(Attention(config) for _ in range(config.layers))
        parts = 3 if config.spec.physics else 2
        self.pooled = nn.Linear(parts * config.width, config.width)
        self.residuals = Residuals(config)

    def context(self, constant_SLD: Tensor, s: SketchTensors) -> Tensor:
        """`[S, tokens, D]`: the fixed rows of each sketch, read by learnt queries."""
        rows = self.summary.norm(self.rows(constant_SLD, s.numbers_SLW))
        queries = self.queries.expand(len(s), -1, -1)
        # A sketch may have no fixed row: let it see its (open) rows rather than nothing.
        allowed = s.fixed_SL | ~s.fixed_SL.any(1, keepdim=True)
        query, key_value = self.summary.query(queries), self.summary.key_value(rows)
        answer = queries + self.summary.attend(query, key_value, allowed)
        out: Tensor = self.norm_context(self.summary.fed(answer))
        return out

    def forward(self, batch: ProgramBatch) -> Tensor:
        first_NRD, x_NRD, context_STD, real = self.states(batch)
        sums = [_summed(first_NRD, real), _summed(x_NRD, real)]
        if self.physics is not None:
            sums.append(first_NRD[:, -1])
        around_ND = spread(context_STD.mean(1), batch.sketch_N, self.training)
        pooled: Tensor = self.residuals(self.pooled(torch.cat(sums, dim=-1)) + around_ND)
        return pooled  # [N, D]

    def states(self, batch: ProgramBatch) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Live rows, and where there are any the hardware features as the last row, before and
        after they saw each other; the context; which rows are no padding (None: all)."""
        s, training = batch.sketches, self.training
        constant_SLD = self.rows.constant(s.types_SL, s.names_SLK)
        context_STD = self.context(constant_SLD, s)
        live = s.live_SR[..., None].expand(-1, -1, constant_SLD.shape[-1])
        constant_SRD = constant_SLD.gather(1, live)
        first_NRD = self.rows(spread(constant_SRD, batch.sketch_N, training), live_numbers(batch))
        if self.physics is not None:
            first_NRD = torch.cat([first_NRD, self.physics(batch.values_NV)[:, None]], dim=1)
        real, allowed = self._masks(batch, context_STD.shape[1])
        x_NRD = first_NRD
        for layer in self.layers:
            assert isinstance(layer, Attention)
            key_value = spread(layer.key_value(context_STD), batch.sketch_N, training)
            x_NRD = layer(x_NRD, key_value, allowed)
        return first_NRD, x_NRD, context_STD, real

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


class PaperTrunk(nn.Module):
    """As published: row MLP, one attention without norm, 2 residual blocks, no mask, no positions.

    Types are one-hot; heads apply per position and are summed. An LSTM in place of attention leaves
    one position, its last.
    """

    def __init__(self, config: TLPConfig) -> None:
        super().__init__()
        width = config.width
        sizes = [TYPE_SLOTS + config.spec.numbers, 64, 128, width, width]
        layers: list[nn.Module] = []
        for inner, outer in itertools.pairwise(sizes):
            layers += [nn.Linear(inner, outer), nn.ReLU()]
        self.encode = nn.Sequential(*layers)
        self.heads = config.heads
        self.lstm: nn.LSTM | None = None
        if config.mixer == "lstm":
            self.lstm = nn.LSTM(width, width, batch_first=True)
        else:
            self.query_key_value = nn.Linear(width, 3 * width)
            self.merge = nn.Linear(width, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, batch: ProgramBatch) -> Tensor:
        s = batch.sketches
        known = torch.arange(TYPE_SLOTS, device=s.types_SL.device)
        hot = ((s.types_SL[..., None] == known) & s.real_SL[..., None]).float()
        x = self.encode(torch.cat([hot[batch.sketch_N], all_numbers(batch)], dim=-1))  # [N, L, D]
        x = x + self.attend(x) if self.lstm is None else self.lstm(x)[0][:, -1:]
        for block in self.blocks:
            x = x + F.relu(block(x))
        out: Tensor = x
        return out  # [N, L, D]

    def attend(self, x: Tensor) -> Tensor:
        parts = self.query_key_value(x).chunk(3, dim=-1)
        query, key, value = (
            p.reshape(*p.shape[:-1], self.heads, -1).transpose(1, 2) for p in parts
        )
        merged: Tensor = self.merge(attention(query, key, value, None).transpose(1, 2).flatten(2))
        return merged


# ---- heads and the whole network ----------------------------------------------------------------


def make_head(config: TLPConfig) -> nn.Module:
    width, outputs = config.width, 1 + config.fails
    if config.style == "paper":
        return nn.Sequential(
            *(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()),
            *(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, outputs)),
        )
    return nn.Sequential(
        nn.Linear(width, width), nn.GELU(), nn.Dropout(config.dropout), nn.Linear(width, outputs)
    )


class TLPMember(nn.Module):
    """One trunk and its heads: `[N, H, 2]`."""

    def __init__(self, config: TLPConfig, platforms: tuple[str, ...]) -> None:
        super().__init__()
        self.per_position, self.fails = config.style == "paper", config.fails
        self.trunk = PaperTrunk(config) if self.per_position else LiveTrunk(config)
        self.heads = nn.ModuleList(make_head(config) for _ in platforms)

    def forward(self, batch: ProgramBatch) -> Tensor:
        x = self.trunk(batch)
        out = torch.stack([head(x) for head in self.heads], dim=-2)
        out = out.sum(1) if self.per_position else out
        return out if self.fails else F.pad(out, (0, 1), value=NEVER)


class TLPNetwork(TorchNetwork):
    def __init__(self, config: TLPConfig, platforms: tuple[str, ...]) -> None:
        super().__init__()
        self.config: TLPConfig = config
        self.platforms = platforms
        self.members = nn.ModuleList(TLPMember(config, platforms) for _ in range(config.members))

    def forward(self, batch: ProgramBatch) -> Tensor:
        return torch.cat([member(batch) for member in self.members], dim=-1)  # [N, H, 2 * M]


# ---- models -------------------------------------------------------------------------------------


def _version(spec: MatrixSpec) -> str:
    """Of the matrix and, where they stand beside it, of the hardware features."""
    beside = (features_hash(spec.machine),) if spec.physics else ()
    return version_of(astuple(spec), Vocabulary().hash, *beside)


@register
class TLP(Model):
    kind: ClassVar[str] = "tlp"

    def __init__(self, network: TLPNetwork) -> None:
        self.platforms = network.platforms
        if len(self.platforms) != 1 and self.kind == "tlp":
            names = ", ".join(self.platforms) or "none"
            raise ModelError(f"tlp has one platform, but got {names}; use mtl-tlp")
        self.network = network
        self.encoder = Encoder(network.config.spec)
        self.needs = FeatureSet(
            name="matrix",
            version=_version(network.config.spec),
            shape="matrix",
        )
        self._templates: dict[tuple[str, str], tuple[Template, SketchTensors]] = {}

    def read(self, workload: Workload, sketch: Sketch, decisions: npt.ArrayLike) -> ProgramBatch:
        key = (workload.id, sketch.id)
        if key not in self._templates:
            context = context_of(workload)
            template = self.encoder.template(sketch.dialect, sketch.body, sketch.slots, context)
            self._templates[key] = (template, stack_templates([template]))
        template, sketches = self._templates[key]
        values = torch.from_numpy(template.values(np.asarray(decisions)))
        nobody = torch.zeros(len(values), dtype=torch.int64)
        return ProgramBatch(sketches=sketches, sketch_N=nobody, values_NV=values)

    def read_all(self, programs: ProgramSet) -> ProgramBatch:
        return as_batch(encode_programs(programs, self.encoder))

    def _outputs(self, inputs: ProgramBatch, platform: str) -> Floats32:
        chunk = CHUNK if len(inputs.sketches) == 1 else MIXED_CHUNK
        outputs_NM2 = outputs_of(self.network, inputs, self.head_index(platform), chunk)
        return np.asarray(outputs_NM2.numpy())

    def opinions(self, inputs: ProgramBatch, platform: str) -> Floats32:
        return opinions_of(self._outputs(inputs, platform))

    def speeds(self, inputs: ProgramBatch, platform: str) -> Floats32:
        return speeds_of(self._outputs(inputs, platform))

    def section(self) -> dict[str, Any]:
        return asdict(self.network.config)

    def tensors(self, *, half: bool) -> Tensors:
        dtype = torch.float16 if half else torch.float32
        state = self.network.state_dict().items()
        return {name: tensor.detach().cpu().to(dtype).numpy() for name, tensor in state}

    @classmethod
    def build(
        cls, platforms: tuple[str, ...], section: Mapping[str, Any], tensors: Tensors
    ) -> Self:
        config = TLPConfig(**{**section, "spec": MatrixSpec(**section["spec"])})
        parts = config.members * (1 + max(config.layers, 0) + max(config.blocks, 0))
        return cls(built(lambda: TLPNetwork(config, platforms), tensors, parts))


@register
class MTLTLP(TLP):
    kind: ClassVar[str] = "mtl-tlp"

    def add_head(self, platform: str, *, like: str | None = None) -> None:
        """A fresh head, or a copy of the head of the platform it is `like`."""
        if platform in self.platforms:
            raise ModelError(f"each platform has one head, but {platform!r} has one already")
        place = None if like is None else self.head_index(like)
        device = next(self.network.parameters()).device
        for member in self.network.members:
            assert isinstance(member, TLPMember)
            old = None if place is None else member.heads[place]
            head = make_head(self.network.config) if old is None else copy.deepcopy(old)
            member.heads.append(head.to(device))
        self.platforms = self.network.platforms = (*self.platforms, platform)


def with_head(model: TLP, platform: str, *, name: str = "") -> TLP:
    """A TLP of the trunk and one of the heads, under its platform's or another name; copied."""
    weights, place = {}, model.head_index(platform)
    for key, tensor in model.tensors(half=False).items():
        trunk, is_head, rest = key.partition(".heads.")
        number, _, part = rest.partition(".")
        if not is_head or not number.isdigit():
            weights[key] = tensor
        elif int(number) == place:
            weights[f"{trunk}.heads.0.{part}"] = tensor
    return TLP.build((name or platform,), model.section(), weights)
