from __future__ import annotations

import contextlib
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tensorese.workloads import NetworkError, load_network
from workload_support import export, host, network_of, worst_error

pytestmark = pytest.mark.tvm


class Bomb:
    """Unpickling it writes a file: the proof that something was unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.path,)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "net.pt2"
    torch.export.save(export(nn.Linear(4, 3), torch.randn(2, 4)), str(path))
    return path


WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
SAMPLES = "data/sample_inputs/model.pt"
OBJECT = b'{"config": {"c": {"path_name": "opaque_obj_0", "use_pickle": %s}}}'
PICKLED = b'{"config": {"weight": {"path_name": "weight_0", "use_pickle": true}}}'


def rewritten(source: Path, members: dict[str, bytes]) -> Path:
    """A copy of an archive with some members replaced or added."""
    path = source.with_name("changed.pt2")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        root = old.namelist()[0].partition("/")[0]
        kept = {name.partition("/")[2]: old.read(name) for name in old.namelist()}
        for inner, data in {**kept, **members}.items():
            new.writestr(f"{root}/{inner}", data)
    return path


def test_an_archive_is_a_network_and_agrees(archive: Path) -> None:
    network = load_network(str(archive))
    assert network.name == "net"
    assert [one.spec.shape for one in network.inputs] == [(2, 4)]
    assert worst_error(network, host()) < 1e-5


def test_a_program_in_memory_with_two_inputs_and_outputs_agrees() -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x + y, x @ y.T

    network = network_of(Pair(), torch.randn(3, 4), torch.randn(3, 4))
    assert [one.name for one in network.inputs] == ["x", "y"]
    assert worst_error(network, host()) < 1e-5


def test_example_inputs_are_seeded() -> None:
    network = network_of(nn.Linear(4, 3), torch.randn(2, 4))
    assert np.array_equal(network.example(1)[0], network.example(1)[0])
    assert not np.array_equal(network.example(1)[0], network.example(2)[0])


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({SAMPLES: b"bomb"}, "holds a pickle"),
        ({WEIGHTS: PICKLED, "data/weights/weight_0": b"bomb"}, "holds a pickle"),
        ({CONSTANTS: OBJECT % b"true"}, "holds a pickle"),
        ({CONSTANTS: OBJECT % b"false"}, "holds a pickle"),
        ({"data/constants/opaque_obj_0": b"raw"}, "opaque_obj_0"),
        ({"data/weights/model.pt": b"bomb"}, "'data/weights/model.pt'"),
        ({"data/aotinductor/model/lib.so": b"ELF"}, "lib.so"),
        ({WEIGHTS.upper(): PICKLED}, "a member twice"),
        ({WEIGHTS: b"{}"}, "damaged"),
    ],
)
def test_no_part_of_an_archive_is_unpickled(
    members: dict[str, bytes], says: str, archive: Path, tmp_path: Path
) -> None:
    marker, saved = tmp_path / "unpickled", io.BytesIO()
    torch.save((Bomb(marker),), saved)
    payloads = {b"bomb": saved.getvalue(), b"raw": pickle.dumps(Bomb(marker))}
    members = {name: payloads.get(data, data) for name, data in members.items()}
    with pytest.raises(NetworkError) as caught:
        load_network(rewritten(archive, members))
    assert says in str(caught.value)
    assert not marker.exists()


def test_the_refusals_are_needed_and_not_of_the_copy(archive: Path, tmp_path: Path) -> None:
    assert load_network(rewritten(archive, {})).name == "changed"
    marker, saved = tmp_path / "unpickled", io.BytesIO()
    torch.save((Bomb(marker),), saved)
    with contextlib.suppress(TypeError):  # torch's own warning about it is malformed
        torch.export.load(rewritten(archive, {SAMPLES: saved.getvalue()}))
    assert marker.exists()  # what torch alone would have done


def test_packed_members_are_refused_before_they_are_read(archive: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.pt2"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(packed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
        root = old.namelist()[0].partition("/")[0]
        bomb = b" " * (64 << 20)
        new.writestr(f"{root}/extra/bomb", bomb, compress_type=zipfile.ZIP_DEFLATED)
    with pytest.raises(NetworkError, match="packed members"):
        load_network(packed)


@pytest.mark.parametrize("kind", ["state", "module", "legacy", "plain"])
def test_pickles_are_refused_whatever_they_are_called(kind: str, tmp_path: Path) -> None:
    path, model = tmp_path / "model.onnx", nn.Linear(2, 2)
    if kind == "plain":
        path.write_bytes(pickle.dumps({"a": 1}))
    else:
        saved = model if kind == "module" else model.state_dict()
        torch.save(saved, path, _use_new_zipfile_serialization=kind != "legacy")
    with pytest.raises(NetworkError, match=r"holds a pickle .* torch\.export\.save"):
        load_network(path)


def test_what_is_no_model_is_refused(tmp_path: Path, archive: Path) -> None:
    text, zipped, cut = tmp_path / "a.txt", tmp_path / "b.zip", tmp_path / "c.pt2"
    text.write_text("hello, this is no model at all\n" * 20)
    with zipfile.ZipFile(zipped, "w") as new:
        new.writestr("a/readme", "hello")
    cut.write_bytes(archive.read_bytes()[:400])
    for spec, says in [
        (text, "neither ONNX nor"),
        (zipped, "no torch.export one"),
        (cut, "broken zip"),
        (tmp_path, "must be a file"),
        ("resnet18", "zoo:NAME"),
        ("zoo:resnet81", "did you mean"),
        (f"{archive}@1x2", r".onnx files only"),
        (nn.Linear(2, 2), "got a Linear; call torch.export.export"),
    ]:
        with pytest.raises(NetworkError) as caught:
            load_network(spec)
        assert says in str(caught.value) and "\n" not in str(caught.value)


def test_an_archive_of_another_zip_is_refused(archive: Path, tmp_path: Path) -> None:
    data = bytearray(archive.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 6] = 232  # the version that is needed to read a member
    path = tmp_path / "new.pt2"
    path.write_bytes(bytes(data))
    with pytest.raises(NetworkError, match="broken zip archive"):
        load_network(path)


def test_torchs_complaint_may_hold_the_files_bytes(archive: Path) -> None:
    with pytest.raises(NetworkError, match="no archive torch reads"):
        load_network(rewritten(archive, {".data/version": b"\x98\x9b"}))


def test_dynamic_shapes_say_what_to_do() -> None:
    dim = torch.export.Dim("batch", min=2, max=8)
    program = export(nn.Linear(4, 3), torch.randn(2, 4), dynamic_shapes=({0: dim},))
    with pytest.raises(NetworkError, match=r"'input' is \w+x4; export the model without dynamic"):
        load_network(program)


def test_an_unsupported_operator_is_named() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.qr(x)[0]

    with pytest.raises(NetworkError, match=r"no operator linalg_qr\.default"):
        network_of(Odd(), torch.randn(4, 4))
