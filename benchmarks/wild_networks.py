"""Networks as people have them, at their published sizes: built from configs, weights random."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, Any]


def _bert_mini() -> Made:
    """all-MiniLM-L6: six layers of 384, a sentence of 128 words, a quarter of it padding."""
    import transformers

    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    mask = torch.ones(1, 128, dtype=torch.int64)
    mask[:, 96:] = 0
    ids = torch.randint(1000, 30000, (1, 128))
    return transformers.BertModel(config), {"input_ids": ids, "attention_mask": mask}


def _convnext_t() -> Made:
    import transformers

    model = transformers.ConvNextModel(transformers.ConvNextConfig())
    return model, {"pixel_values": torch.randn(1, 3, 224, 224)}


def _efficientnet_b1() -> Made:
    import transformers

    config = transformers.EfficientNetConfig(
        width_coefficient=1.0, depth_coefficient=1.1, hidden_dim=1280, image_size=240
    )
    return transformers.EfficientNetModel(config), {"pixel_values": torch.randn(1, 3, 240, 240)}


def _whisper_encoder() -> Made:
    """Of whisper-tiny: four layers of 384 on thirty seconds of sound."""
    import transformers

    model = transformers.WhisperModel(transformers.WhisperConfig(decoder_layers=1))
    return model.encoder, (torch.randn(1, 80, 3000),)


def _convolutions(*channels: int) -> nn.Module:
    layers: list[nn.Module] = []
    for narrow, wide in itertools.pairwise(channels):
        layers += [nn.Conv2d(narrow, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Ronneberger's form, half as wide, on a picture of 256 pixels."""

    def __init__(self) -> None:
        super().__init__()
        widths = [32, 64, 128, 256]
        self.down = nn.ModuleList(
            _convolutions(a, b, b) for a, b in zip([3, *widths], widths, strict=False)
        )
        self.bottom = _convolutions(256, 512, 512)
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths))
        self.up = nn.ModuleList(_convolutions(2 * w, w, w) for w in reversed(widths))
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(32, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        passed = []
        for layer in self.down:
            passed.append(layer(x))
            x = self.pool(passed[-1])
        x = self.bottom(x)
        for grow, layer in zip(self.grow, self.up, strict=True):
            x = layer(torch.cat([passed.pop(), grow(x)], 1))
        y: Tensor = self.head(x)
        return y


class ShuffleUnit(nn.Module):
    """ShuffleNet V2's: half of the channels pass, the halves are mixed after it."""

    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        half = wide // 2
        first = narrow if stride == 2 else half
        self.stride = stride
        self.path = nn.Sequential(
            *_pointwise(first, half), *_depthwise(half, stride), *_pointwise(half, half)
        )
        if stride == 2:
            self.short = nn.Sequential(*_depthwise(narrow, 2), *_pointwise(narrow, half))

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 2:
            y = torch.cat([self.short(x), self.path(x)], 1)
        else:
            passed, changed = x.chunk(2, 1)
            y = torch.cat([passed, self.path(changed)], 1)
        n, c, height, width = y.shape
        return y.view(n, 2, c // 2, height, width).transpose(1, 2).reshape(n, c, height, width)


def _pointwise(narrow: int, wide: int) -> list[nn.Module]:
    return [nn.Conv2d(narrow, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]


def _depthwise(channels: int, stride: int) -> list[nn.Module]:
    layer = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)
    return [layer, nn.BatchNorm2d(channels)]


def _shufflenet() -> Made:
    layers: list[nn.Module] = [*_stem(), nn.MaxPool2d(3, 2, 1)]
    narrow = 24
    for wide, repeats in ((116, 4), (232, 8), (464, 4)):
        layers.append(ShuffleUnit(narrow, wide, 2))
        layers += [ShuffleUnit(wide, wide, 1) for _ in range(repeats - 1)]
        narrow = wide
    head = [*_pointwise(464, 1024), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000)]
    return nn.Sequential(*layers, *head), (torch.randn(1, 3, 224, 224),)


def _stem() -> list[nn.Module]:
    return [nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU()]


TORCH: dict[str, Callable[[], Made]] = {
    "minilm": _bert_mini,
    "unet": lambda: (UNet(), (torch.randn(1, 3, 256, 256),)),
    "convnext_t": _convnext_t,
    "efficientnet_b1": _efficientnet_b1,
    "shufflenet": _shufflenet,
    "whisper_encoder": _whisper_encoder,
}
# Files of the wheel `rapidocr-onnxruntime`, with the shapes they are mostly used at.
OCR = {
    "ocr_detection": ("*det*.onnx", "1x3x640x640"),
    "ocr_recognition": ("*rec*.onnx", "1x3x48x320"),
}
NAMES = (*TORCH, *OCR)


def model_of(name: str, folder: Path) -> str:
    """What `tensorese tune` takes: an exported file, or an installed one with its shape."""
    if name in TORCH:
        from tensorese.workloads.from_torch import exported

        path = folder / f"{name}.pt2"
        if not path.exists():
            torch.manual_seed(0)
            torch.export.save(exported(*TORCH[name]()), path)
        return str(path)
    found = importlib.util.find_spec("rapidocr_onnxruntime")
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{name} is in the wheel rapidocr-onnxruntime: pip install it first")
    pattern, shape = OCR[name]
    (path, *_) = sorted(Path(found.submodule_search_locations[0]).rglob(pattern))
    return f"{path}@{shape}"
