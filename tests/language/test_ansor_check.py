"""Ansor's rules: all that is valid in the public files keeps them, and damage breaks them."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ansor_support import V100, cpu_steps, gpu_steps, lines

from tensorese.language.ansor_check import AnsorHardware, broken_rules

pytestmark = pytest.mark.null

SAMPLER = {"warp", "vthreads"}
"""Rules that Ansor's first programs keep; its evolution changes tiles without asking again."""
CROSSED = {
    "x86": {},
    "a100": {"warp": 498, "vthreads": 197},
    "rtx3080": {"warp": 72, "vthreads": 3},
    "mi50": {"warp": 1992},
    "k80": {"warp": 2020, "vthreads": 3197},
    "v100": {"warp": 3941, "vthreads": 4900},
}
VALID = {"x86": 5112, "a100": 4056, "rtx3080": 4069, "mi50": 62392, "k80": 71483, "v100": 114714}
SMALL = ("x86", "a100", "rtx3080")


@pytest.mark.parametrize("steps", [cpu_steps(), cpu_steps(1, 16, 512), gpu_steps()])
def test_sound_steps_break_nothing(steps: list[list[Any]]) -> None:
    assert broken_rules(steps, V100, {8: {3, 5}, 10: {6}}) == {}


@pytest.mark.parametrize(
    ("steps", "rule", "message"),
    [
        (cpu_steps(outer=3), "extents", "step 1: lengths [3, 4, 8] do not divide 64"),
        (cpu_steps(inner=0), "extents", "step 1: lengths [2, 4, 0] do not divide 64"),
        (cpu_steps(unroll=17), "unroll", "step 11: auto_unroll_max_step$17 is none of"),
        (cpu_steps(unroll=1024), "unroll", "none of (0, 16, 64, 512)"),
        (cpu_steps(place=9), "places", "step 8: place 9 is none of its list"),
        (gpu_steps(threads=1), "warp", "4 threads are less than a warp of 32"),
        (gpu_steps(vthread=16, threads=8), "extents", "do not divide 128"),
        (gpu_steps(fetch=(97, 4)), "extents", "lengths [4] do not divide 97"),
        (gpu_steps(fetch=(128, 128)), "innermost", "length 128 is above 64"),
    ],
)
def test_damage_is_named(steps: list[list[Any]], rule: str, message: str) -> None:
    broken = broken_rules(steps, V100, {8: {3, 5}, 10: {6}})
    assert list(broken) == [rule] and message in broken[rule]


def test_threads_are_those_of_the_machine() -> None:
    steps = gpu_steps(vthread=8, threads=64)
    assert broken_rules(steps, V100) == {}
    small = AnsorHardware(threads=128, vthreads=4, warp=32)
    assert set(broken_rules(steps, small)) == {"threads", "vthreads"}


def test_little_work_may_have_less_than_a_warp() -> None:
    steps = gpu_steps(threads=1)
    steps[1] = ["SP", 2, 0, 4, [1, 1, 1, 1], 1]
    steps[2] = ["SP", 2, 5, 16, [1, 4, 1, 4], 1]
    assert broken_rules(steps, V100) == {}  # 64 elements: Ansor asks for a warp above two of them


def test_hardware_numbers_of_a_record() -> None:
    gpu = AnsorHardware.read([-1, 16, 64, 65536, 2147483647, 1024, 16, 64])
    assert gpu == AnsorHardware(threads=1024, vthreads=16, warp=64)
    assert AnsorHardware.read([8, 64, 64, 0, 0, 0, 0, 0]) == AnsorHardware()


def crossed(path: Path, every: int) -> tuple[int, Counter[str]]:
    """Valid records, and how many cross each rule."""
    valid, rules = 0, Counter[str]()
    for record in lines(path, every):
        if record["r"][1] == 0:
            valid += 1
            task, (_, steps) = record["i"]
            rules.update(list(broken_rules(steps, AnsorHardware.read(task[2]))))
    return valid, rules


@pytest.mark.shared
@pytest.mark.parametrize("name", SMALL)
def test_valid_records_keep_every_rule_but_the_samplers(shared_data: Path, name: str) -> None:
    assert crossed(shared_data / "ansor" / f"{name}.json.zst", 1) == (VALID[name], CROSSED[name])


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", sorted(set(VALID) - set(SMALL)))
def test_every_valid_record_keeps_every_rule_but_the_samplers(shared_data: Path, name: str) -> None:
    valid, rules = crossed(shared_data / "ansor" / f"{name}.json.zst", 1)
    assert (valid, rules) == (VALID[name], CROSSED[name])
    assert set(rules) <= SAMPLER


def damaged(steps: list[list[Any]], rule: str) -> list[list[Any]] | None:
    """The steps with one number that breaks the rule; None where they have none to break."""
    steps = copy.deepcopy(steps)
    splits = [step for step in steps if step[0] == "SP"]
    if rule == "extents" and splits:
        splits[0][4][0] = splits[0][3] + 1
    elif rule == "innermost" and splits:
        lengths = splits[-1][4]
        splits[-1][3], lengths[-1] = splits[-1][3] * 128, lengths[-1] * 128
    elif rule == "places" and any(step[0] == "CA" for step in steps):
        next(step for step in steps if step[0] == "CA")[3] += 1
    elif rule == "unroll" and any(step[0] == "PR" for step in steps):
        next(step for step in steps if step[0] == "PR")[3] = "auto_unroll_max_step$128"
    elif rule == "threads" and any(step[0] == "AN" and step[-1] == 4 for step in steps):
        splits[0][3], splits[0][4][1] = splits[0][3] * 1031, splits[0][4][1] * 1031
    else:
        return None
    return steps


@pytest.mark.shared
@pytest.mark.parametrize("rule", ["extents", "innermost", "places", "unroll", "threads"])
@pytest.mark.parametrize("name", ["x86", "a100"])
def test_damaged_records_are_rejected(shared_data: Path, name: str, rule: str) -> None:
    tried = 0
    for record in lines(shared_data / "ansor" / f"{name}.json.zst", 20):
        task, (_, steps) = record["i"]
        places = {k: {step[3]} for k, step in enumerate(steps) if step[0] == "CA"}
        broken = damaged(steps, rule)
        if broken is not None:
            tried += 1
            assert rule in broken_rules(broken, AnsorHardware.read(task[2]), places)
    assert tried > 50 or (name, rule) == ("x86", "threads")
