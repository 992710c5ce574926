from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tensorese.errors import TargetError
from tensorese.targets import _caches, host_cpu, parse_target, platform_of, target_threads

pytestmark = pytest.mark.tvm


def test_host_names_this_cpu_and_all_its_usable_cores() -> None:
    spec = json.loads(parse_target("host"))
    assert spec["kind"] == "llvm"
    assert spec["mcpu"] == host_cpu().mcpu
    assert spec["num-cores"] == len(os.sched_getaffinity(0)) == target_threads(parse_target("host"))


def test_a_cuda_target_needs_no_gpu_when_the_device_is_named() -> None:
    spec = json.loads(parse_target("cuda:H200"))
    assert spec["arch"] == "sm_90"
    assert spec["max_threads_per_block"] == 1024
    assert target_threads(parse_target("cuda:h200")) == 1


def test_equal_targets_have_one_spelling() -> None:
    one = parse_target('{"kind": "llvm", "num-cores": 2}')
    assert one == parse_target('{"num-cores":2,"kind":"llvm"}')


def test_a_target_without_cores_gets_this_machines() -> None:
    assert json.loads(parse_target('{"kind":"llvm"}'))["num-cores"] == host_cpu().cores


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
        parse_target(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_platforms_are_named_after_the_hardware_unless_the_user_names_them() -> None:
    target = '{"kind":"llvm","mcpu":"znver4","num-cores":2}'
    assert platform_of(target).name == "znver4-2c"
    assert platform_of(target, "lab-epyc").name == "lab-epyc"
    assert platform_of('{"arch":"sm_90","kind":"cuda"}').name == "cuda-sm_90"


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
