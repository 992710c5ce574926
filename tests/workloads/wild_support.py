"""ONNX files as people ship them: fetched from public wheels, or exported from torch.

Nothing is kept in the repository: files go to a folder of the caller's. `benchmarks/
models_that_work.py` makes docs/models-that-work.md of the same list.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class WildFile:
    """One ONNX file and how its open shapes are fixed, small enough to tune in minutes."""

    name: str
    origin: str
    """A wheel on the package index, `onnx`, or `torch.onnx.export`."""
    options: tuple[str, ...] = ()
    """Of `tensorese tune`: --shape, --dim, --value."""
    member: str = ""
    """The end of its name in the wheel."""
    build: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]] | None = field(
        default=None, compare=False
    )


def _shape(text: str) -> tuple[str, str]:
    return ("--shape", text)


_VAD = ("--dim", "batch=1", "--dim", "sequence=576")
_RATE = ("--value", "sr=16000")


def _wheel(origin: str, member: str, *options: str) -> WildFile:
    return WildFile(name=Path(member).stem, origin=origin, member=member, options=options)


WHEELS = (
    _wheel("rapidocr", "PP-OCRv6_det_small.onnx", *_shape("x=1x3x64x64")),
    _wheel("rapidocr", "PP-OCRv6_rec_small.onnx", *_shape("x=1x3x48x64")),
    _wheel("rapidocr", "ch_ppocr_mobile_v2.0_cls_mobile.onnx", *_shape("x=1x3x48x192")),
    _wheel("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx", *_shape("x=1x3x64x64")),
    _wheel("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", *_shape("x=1x3x48x64")),
    _wheel("rapidocr-onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx", *_shape("x=1x3x48x192")),
    _wheel(
        "silero-vad",
        "silero_vad.onnx",
        *_shape("input=1x576"),
        *_shape("state=2x1x128"),
        *_RATE,
    ),
    _wheel("silero-vad", "silero_vad_16k_op15.onnx", *_VAD, *_RATE),
    _wheel("silero-vad", "silero_vad_16k_sequence.onnx", "--dim", "sequence_length=4"),
    _wheel("silero-vad", "silero_vad_half.onnx", *_VAD),
    _wheel("silero-vad", "silero_vad_op18_ifless.onnx", *_VAD, *_RATE),
    _wheel("silero-vad", "silero_vad_openvino_16k.onnx"),
    _wheel("magika", "model.onnx", *_shape("bytes=1x2048")),
)
LIGHT = tuple(
    WildFile(name=f"light_{name}", origin="onnx")
    for name in (
        "bvlc_alexnet",
        "densenet121",
        "inception_v1",
        "inception_v2",
        "resnet50",
        "shufflenet",
        "squeezenet",
        "vgg19",
        "zfnet512",
    )
)


# -- networks that torch exports ----------------------------------------------------------------


def _ids(vocabulary: int, length: int = 32) -> Tensor:
    return torch.arange(length).reshape(1, length) * 7 % vocabulary


def _transformer(kind: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A small one of the family, built from a config: nothing is downloaded."""
    import transformers as t

    small = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 64}
    makers: dict[str, Callable[[], Any]] = {
        "bert": lambda: t.BertModel(t.BertConfig(**small, intermediate_size=128, vocab_size=500)),
        "distilbert": lambda: t.DistilBertModel(
            t.DistilBertConfig(dim=64, hidden_dim=128, n_layers=2, n_heads=2, vocab_size=500)
        ),
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(n_embd=64, n_layer=2, n_head=2, vocab_size=500, use_cache=False)
        ),
        "llama": lambda: t.LlamaForCausalLM(
            t.LlamaConfig(
                **small,
                intermediate_size=128,
                vocab_size=500,
                num_key_value_heads=1,
                use_cache=False,
            )
        ),
        "t5_encoder": lambda: t.T5EncoderModel(
            t.T5Config(d_model=64, d_kv=32, d_ff=128, num_layers=2, num_heads=2, vocab_size=500)
        ),
        "vit": lambda: t.ViTModel(
            t.ViTConfig(**small, intermediate_size=128, image_size=32, patch_size=8)
        ),
        "whisper_encoder": lambda: (
            t.WhisperModel(
                t.WhisperConfig(
                    d_model=64,
                    encoder_layers=2,
                    encoder_attention_heads=2,
                    encoder_ffn_dim=128,
                    decoder_layers=1,
                    decoder_attention_heads=2,
                    decoder_ffn_dim=128,
                    max_source_positions=50,
                    vocab_size=500,
                    pad_token_id=0,
                    bos_token_id=1,
                    eos_token_id=2,
                    decoder_start_token_id=1,
                )
            ).encoder
        ),
    }
    images = {"vit": torch.randn(1, 3, 32, 32), "whisper_encoder": torch.randn(1, 80, 100)}
    return First(makers[kind]()), (images.get(kind, _ids(500)),)


class First(nn.Module):
    """The first of a network's outputs, by position: exporters differ about names."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return self.inner(x, return_dict=False)[0]


class Recurrent(nn.Module):
    """Both directions of an LSTM and a GRU behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 24, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(48, 24, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        steps, (_, cell) = self.lstm(x)
        steps, hidden = self.gru(steps)
        return steps, hidden, cell


class UNet(nn.Module):
    """Two levels, transposed convolutions and a bilinear way up."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = _twice(3, 16), _twice(16, 32)
        self.bottom = _twice(32, 64)
        self.up = nn.ConvTranspose2d(64, 32, 3, stride=2, padding=1, output_padding=1)
        self.smooth = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.third, self.last = _twice(64, 32), _twice(48, 16)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        b = self.second(nn.functional.max_pool2d(a, 2))
        c = self.up(self.bottom(nn.functional.max_pool2d(b, 2)))
        d = self.smooth(self.third(torch.cat([c, b], 1)))
        return self.head(self.last(torch.cat([d, a], 1)))


def _twice(before: int, after: int) -> nn.Sequential:
    def once(i: int, o: int) -> list[nn.Module]:
        return [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()]

    return nn.Sequential(*once(before, after), *once(after, after))


class ConvNeXtBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(nn.functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


def _convnext() -> tuple[nn.Module, tuple[Tensor, ...]]:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 4, stride=4),
        ConvNeXtBlock(32),
        nn.Conv2d(32, 64, 2, stride=2),
        ConvNeXtBlock(64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    return model, (torch.randn(1, 3, 64, 64),)


def _zoo(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    from tensorese.workloads import zoo

    return zoo.build(name), (torch.randn(1, 3, 64, 64),)


def _export(name: str, build: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]) -> WildFile:
    return WildFile(name=name, origin="torch.onnx.export", build=build)


EXPORTS = (
    *(
        _export(kind, lambda kind=kind: _transformer(kind))  # type: ignore[misc]
        for kind in ("bert", "distilbert", "gpt2", "llama", "t5_encoder", "vit", "whisper_encoder")
    ),
    _export("recurrent", lambda: (Recurrent(), (torch.randn(2, 6, 16),))),
    _export("unet", lambda: (UNet(), (torch.randn(1, 3, 32, 32),))),
    _export("convnext", _convnext),
    _export("efficientnet_b0", lambda: _zoo("efficientnet_b0")),
    _export("resnext50_32x4d", lambda: _zoo("resnext50_32x4d")),
)
FILES = (*WHEELS, *LIGHT, *EXPORTS)


# -- where they are fetched to ----------------------------------------------------------------


def fetch(file: WildFile, folder: Path) -> Path:
    """The file on disk; what is there already is not fetched again."""
    folder.mkdir(parents=True, exist_ok=True)
    if file.build is not None:
        return _exported(file, folder)
    return _light(file, folder) if file.origin == "onnx" else _unpacked(file, folder)


def _light(file: WildFile, folder: Path) -> Path:
    """With what its softmax reads as an output too: of random weights, some softmaxes give a one
    and zeros, in which an error would not show."""
    import onnx

    from workload_support import light_network

    path = folder / "light" / f"{file.name}.onnx"
    if path.exists():
        return path
    path.parent.mkdir(exist_ok=True)
    light_network(file.name.removeprefix("light_"), path.parent)
    model = onnx.load(str(path))
    (output,) = model.graph.output
    (last,) = [node for node in model.graph.node if output.name in node.output]
    if last.op_type == "Softmax":
        model.graph.output.append(onnx.helper.make_value_info(last.input[0], onnx.TypeProto()))
    onnx.save(model, str(path))
    return path


def _unpacked(file: WildFile, folder: Path) -> Path:
    path = folder / file.origin / file.member
    if path.exists():
        return path
    wheels = folder / "wheels"
    stem = file.origin.replace("-", "_")
    if not list(wheels.glob(f"{stem}-*.whl")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels)]
        subprocess.run([*command, file.origin], check=True, capture_output=True)
    (wheel,) = wheels.glob(f"{stem}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [n for n in archive.namelist() if n.endswith(f"/{file.member}")]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(archive.read(member))
    return path


def _exported(file: WildFile, folder: Path) -> Path:
    path = folder / f"{file.name}.onnx"
    if path.exists():
        return path
    assert file.build is not None
    torch.manual_seed(0)
    model, inputs = file.build()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(), inputs, str(path), dynamo=True, external_data=False, verbose=False
        )
    return path
