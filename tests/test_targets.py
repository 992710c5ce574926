from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tensorese.errors import TargetError
from tensorese.targets import Target, _caches, _short_name, host_cpu

pytestmark = pytest.mark.tvm


def test_host_names_this_cpu_and_all_its_usable_cores() -> None:
    target = Target.parse("host")
    assert target.is_cpu and target.mcpu == host_cpu().mcpu
    assert target.cores == len(os.sched_getaffinity(0)) == target.threads
    assert json.loads(target.to_json())["num-cores"] == target.cores


def test_a_cuda_target_needs_no_gpu_when_the_device_is_named() -> None:
    target = Target.parse("cuda:H200")
    assert (target.kind, target.arch, target.threads) == ("cuda", "sm_90", 1)
    assert target.to_dict()["max_threads_per_block"] == 1024


def test_equal_targets_have_one_spelling() -> None:
    one = Target.parse('{"kind": "llvm", "num-cores": 2}')
    other = Target.parse('{"num-cores":2,"kind":"llvm"}')
    assert one == other and one.to_json() == other.to_json() and len({one, other}) == 1
    assert one.to_json() == '{"kind":"llvm","num-cores":2}'


@pytest.mark.parametrize(
    "text",
    [
        '{"kind":"llvm","mattr":["+avx2","+fma"],"mcpu":"znver4","num-cores":2}',
        '{"arch":"sm_90","kind":"cuda","max_threads_per_block":1024}',
        '{"kind":"llvm","mtriple":"aarch64-linux-gnu"}',
    ],
)
def test_what_a_record_says_comes_back_as_it_was(text: str) -> None:
    target = Target.from_json(text)
    assert target.to_json() == text and Target.from_dict(target.to_dict()) == target
    assert hash(target) == hash(Target.from_json(text))


@pytest.mark.parametrize("text", ["{}", "[]", '{"kind":1}'])
def test_a_record_without_a_kind_is_no_target(text: str) -> None:
    with pytest.raises(TargetError, match='must have a "kind"'):
        Target.from_json(text)


def test_a_target_without_cores_gets_this_machines() -> None:
    assert Target.parse('{"kind":"llvm"}').cores == host_cpu().cores


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hots", "did you mean 'host'"),
        ("cuda:h20", "did you mean 'h200'"),
        ('{"kind":"llvm","nm-cores":2}', "did you mean 'num-cores'"),
        ('{"kind":"lvm"}', "did you mean 'llvm'"),
        ('{"kind":"llvm","mcpu":"zenver4"}', "did you mean 'znver4'"),
        ('{"kind"', "must be valid JSON"),
        ('{"kind":3}', 'must have a "kind"'),
        ('{"kind":"llvm","num-cores":"two"}', "TVM refused"),
    ],
)
def test_bad_targets_are_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(TargetError) as refused:
        Target.parse(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_platforms_are_named_after_the_hardware_unless_the_user_names_them() -> None:
    target = Target(kind="llvm", mcpu="znver4", cores=2)
    assert target.platform().name == "znver4-2c"
    assert target.platform().target == target.to_json()
    assert target.platform("lab-epyc").name == "lab-epyc"
    assert Target(kind="cuda", arch="sm_90").platform().name == "cuda-sm_90"


@pytest.mark.parametrize(
    ("says", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h200"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA Quadro of Tomorrow", ""),
    ],
)
def test_a_gpu_has_the_name_its_driver_says(says: str, name: str) -> None:
    assert _short_name(says) == name


def test_a_named_gpu_is_a_platform_of_that_name_and_the_same_target() -> None:
    named = Target.parse("cuda:h200")
    assert named.platform().name == "h200" and named.platform("lab").name == "lab"
    again = Target.from_json(named.to_json())
    assert again == named and again.platform().name == "cuda-sm_90"


def test_caches_are_read_in_bytes(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "level").write_text(level)
        (folder / "type").write_text(kind)
        (folder / "size").write_text(size)
    assert _caches(tmp_path) == {"L1d": 48 * 1024, "L2": 2 * 1024**2}
