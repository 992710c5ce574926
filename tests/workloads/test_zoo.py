"""Parameters and multiply-adds of the zoo, against the published numbers."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tensorese.workloads import NetworkError, zoo

pytestmark = pytest.mark.null

# Parameters, and giga multiply-adds of one published input: torchvision's model pages for the
# image and video networks (Inception-V3 without its auxiliary classifier), PyTorch's DCGAN
# tutorial, the checkpoints of google/bert_uncased_*, bert-base/large-uncased and gpt2.
PUBLISHED: dict[str, tuple[int, float | None]] = {
    "resnet18": (11_689_512, 1.814),
    "resnet50": (25_557_032, 4.089),
    "resnext50_32x4d": (25_028_904, 4.230),
    "wide_resnet50_2": (68_883_240, 11.398),
    "mobilenet_v2": (3_504_872, 0.301),
    "mobilenet_v3_large": (5_483_032, 0.217),
    "mobilenet_v3_small": (2_542_856, 0.057),
    "mnasnet1_0": (4_383_312, 0.314),
    "efficientnet_b0": (5_288_548, 0.386),
    "regnet_x_400mf": (5_495_976, 0.414),
    "squeezenet1_1": (1_235_496, 0.349),
    "deit_tiny": (5_717_416, None),
    "deit_small": (22_050_664, None),
    "densenet121": (7_978_856, 2.834),
    "inception_v3": (23_834_568, 5.713),
    "vgg16": (138_357_544, 15.470),
    "r3d_18": (33_371_472, 40.697),
    "dcgan": (3_576_704, None),
    "bert_tiny": (4_385_920, None),
    "bert_mini": (11_170_560, None),
    "bert_medium": (41_373_184, None),
    "bert_base": (109_482_240, None),
    "bert_large": (335_141_888, None),
    "gpt2": (124_439_808, None),
    "llama_12l": (162_417_408, None),
}
# layers, width, MLP matrices times their width, width of what follows the layers per token
TEXT = {
    "bert_tiny": (2, 128, 2 * 512, 0),
    "bert_mini": (4, 256, 2 * 1024, 0),
    "bert_medium": (8, 512, 2 * 2048, 0),
    "bert_base": (12, 768, 2 * 3072, 0),
    "bert_large": (24, 1024, 2 * 4096, 0),
    "gpt2": (12, 768, 2 * 3072, 50257),
    "llama_12l": (12, 768, 3 * 3072, 32000),
}


def on_meta(name: str) -> tuple[torch.nn.Module, int]:
    """The network without weights, and its multiply-adds: neither memory nor arithmetic."""
    entry = zoo.ZOO[name]
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        module = importlib.import_module(f"tensorese.workloads.zoo.{entry.module}")
        network = getattr(module, name)().eval()
        dtype = torch.long if entry.vocabulary else torch.float32
        network(torch.zeros(entry.shape, dtype=dtype))
    return network, counter.get_total_flops() // 2


def test_every_network_has_a_published_count() -> None:
    assert PUBLISHED.keys() == zoo.ZOO.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_flops_are_the_published_ones(name: str) -> None:
    parameters, macs = PUBLISHED[name]
    network, counted = on_meta(name)
    assert sum(p.numel() for p in network.parameters()) == parameters
    if macs is not None:
        assert round(counted / 1e9, 3) == macs


@pytest.mark.parametrize("name", TEXT)
def test_text_flops_follow_the_layers(name: str) -> None:
    layers, width, mlp, after = TEXT[name]
    tokens = 128
    layer = width * (4 * width + mlp) + 2 * tokens * width  # projections, MLP, attention
    pooler = width * width if name.startswith("bert") else 0
    assert on_meta(name)[1] == tokens * (layers * layer + width * after) + pooler


def test_names_are_read_loosely_and_shapes_strictly() -> None:
    assert zoo.parse("ResNet-18") == ("resnet18", (1, 3, 224, 224))
    assert zoo.parse("mobilenet-v2@8x3x256x256") == ("mobilenet_v2", (8, 3, 256, 256))
    assert zoo.parse("bert_base@4x256") == ("bert_base", (4, 256))
    assert zoo.parse("r3d_18@4x3x16x144x144")[1] == (4, 3, 16, 144, 144)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("resnet19", "did you mean 'resnet18'?"),
        ("resnext50_32x4d@", "joined by 'x'"),
        ("resnet18@1x3x-4x224", "joined by 'x'"),
        ("resnet18@0x3x224x224", "positive"),
        ("resnet18@1x4x224x224", "Nx3xNxN"),
        ("resnet18@1x3x224", "Nx3xNxN"),
        ("resnet18@1x3x8x8", "from 32 to"),
        ("bert_base@1x513", "from 1 to 512"),
        ("dcgan@1x100x2x2", "Nx100x1x1"),
    ],
)
def test_bad_names_and_shapes_are_refused(text: str, says: str) -> None:
    with pytest.raises(NetworkError) as caught:
        zoo.parse(text)
    assert says in str(caught.value)


def test_weights_are_seeded_and_norms_are_not_the_identity() -> None:
    state = torch.random.get_rng_state()
    one, same, other = (zoo.build("dcgan", seed=s) for s in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    names = [name for name, _ in one.named_buffers() if name.endswith("running_mean")]
    assert names and all(one.get_buffer(name).abs().max() > 0 for name in names)
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not any(torch.equal(a, c) for a, _, c in pairs)
    assert not one.training
