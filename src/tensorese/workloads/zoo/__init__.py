"""The papers' networks: real definitions in plain torch, seeded random weights.

Random weights compute the same tasks as trained ones; what they cannot do is classify.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorese.errors import did_you_mean
from tensorese.workloads.errors import NetworkError
from tensorese.workloads.network import parse_extents

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One network of the zoo: where it is defined and the shape it was published with."""

    module: str
    shape: tuple[int, ...]
    vocabulary: int = 0
    """Exclusive upper end of token ids; 0 for networks that take real numbers."""
    free: tuple[int, ...] = (0, 2, 3)
    """The axes `@shape` may change: batch, then image sides or length."""
    least: int = 32
    """The smallest side or length the network can take."""
    most: int = 1 << 16


def _image(module: str, side: int = 224, least: int = 32) -> Entry:
    return Entry(module=module, shape=(1, 3, side, side), least=least)


def _text(module: str, vocabulary: int, most: int) -> Entry:
    return Entry(
        module=module, shape=(1, 128), vocabulary=vocabulary, free=(0, 1), least=1, most=most
    )


ZOO: dict[str, Entry] = {
    "resnet18": _image("resnet"),
    "resnet50": _image("resnet"),
    "resnext50_32x4d": _image("resnet"),
    "wide_resnet50_2": _image("resnet"),
    "mobilenet_v2": _image("mobilenet"),
    "mobilenet_v3_large": _image("mobilenet"),
    "mobilenet_v3_small": _image("mobilenet"),
    "mnasnet1_0": _image("mobilenet"),
    "efficientnet_b0": _image("mobilenet"),
    "regnet_x_400mf": _image("regnet"),
    "squeezenet1_1": _image("squeezenet"),
    "densenet121": _image("densenet"),
    "inception_v3": _image("inception", side=299, least=75),
    "vgg16": _image("vgg"),
    "r3d_18": Entry(module="video", shape=(1, 3, 16, 112, 112), free=(0, 2, 3, 4), least=1),
    "dcgan": Entry(module="dcgan", shape=(1, 100, 1, 1), free=(0,), least=1),
    "deit_tiny": Entry(module="vit", shape=(1, 3, 224, 224), most=224),
    "deit_small": Entry(module="vit", shape=(1, 3, 224, 224), most=224),
    "bert_tiny": _text("bert", 30522, 512),
    "bert_mini": _text("bert", 30522, 512),
    "bert_medium": _text("bert", 30522, 512),
    "bert_base": _text("bert", 30522, 512),
    "bert_large": _text("bert", 30522, 512),
    "gpt2": _text("gpt2", 50257, 1024),
    "llama_12l": _text("llama", 32000, 2048),
}


def parse(text: str) -> tuple[str, tuple[int, ...]]:
    """`NAME[@shape]` to the entry's name and the shape, e.g. `resnet50@8x3x256x256`."""
    requested, _, wanted = text.partition("@")
    squeezed = {_squeeze(name): name for name in ZOO}
    name = squeezed.get(_squeeze(requested))
    if name is None:
        hint = did_you_mean(requested.lower().replace("-", "_"), ZOO)
        raise NetworkError(f"the zoo has no network {requested!r}{hint}; it has: {', '.join(ZOO)}")
    return name, _shape(name, wanted) if "@" in text else ZOO[name].shape


def _squeeze(name: str) -> str:
    """`ResNet-18`, `resnet_18` and `resnet18` are one name."""
    return name.lower().replace("-", "").replace("_", "").replace(".", "")


def _shape(name: str, text: str) -> tuple[int, ...]:
    entry = ZOO[name]
    example = "x".join(map(str, entry.shape))
    shape = parse_extents(text, example)
    fixed = [i for i in range(len(entry.shape)) if i not in entry.free]
    if len(shape) != len(entry.shape) or any(shape[i] != entry.shape[i] for i in fixed):
        rule = "x".join("N" if i in entry.free else str(e) for i, e in enumerate(entry.shape))
        raise NetworkError(f"{name} takes a shape {rule} (published: {example}), but got {text!r}")
    sides = [shape[i] for i in entry.free if i > 0]
    if any(not entry.least <= side <= entry.most for side in sides):
        limits = f"sides (or a length) from {entry.least} to {entry.most}"
        raise NetworkError(f"{name} needs {limits}, but got {text!r}; published: {example}")
    return shape


def build(name: str, seed: int = 0) -> nn.Module:
    """The network, ready for inference; the same seed gives the same weights."""
    import torch

    module = importlib.import_module(f"{__name__}.{ZOO[name].module}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network: nn.Module = getattr(module, name)()
        _unsettle_norms(network)
    return network.eval()


def _unsettle_norms(network: nn.Module) -> None:
    """Fresh batch norms are the identity, which would hide an error in folding them."""
    import torch
    from torch import nn

    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d | nn.BatchNorm3d):
            with torch.no_grad():
                layer.weight.uniform_(0.5, 1.0)
                layer.bias.normal_(0, 0.1)
                assert layer.running_mean is not None and layer.running_var is not None
                layer.running_mean.normal_(0, 0.1)
                layer.running_var.uniform_(0.5, 1.5)


def example_input(name: str, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Seeded input of the kind the network takes: normal numbers or token ids."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    if ZOO[name].vocabulary:
        return torch.randint(ZOO[name].vocabulary, shape, generator=generator)
    return torch.randn(shape, generator=generator)
