"""The numbers of a platform, from its target alone."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tensorese.language.hardware import hardware_numbers
from tensorese.language.words import AT, platform_words

pytestmark = pytest.mark.null

H200 = {"kind": "cuda", "arch": "sm_90", "max_shared_memory_per_block": 49152}


def test_a_cpu_is_looked_up_by_its_name() -> None:
    numbers = hardware_numbers({"kind": "llvm", "mcpu": "znver4", "num-cores": 16})
    assert numbers["cores"] == 16 and numbers["vector bits"] == 512
    assert (numbers["L1"], numbers["L2"]) == (32 << 10, 1 << 20)


def test_the_longest_name_that_fits_counts() -> None:
    by_name = {
        name: hardware_numbers({"kind": "llvm", "mcpu": name})
        for name in ("skylake", "skylake-avx512", "skylake-avx512-of-some-kind")
    }
    assert by_name["skylake"]["vector bits"] == 256
    assert by_name["skylake-avx512"] == by_name["skylake-avx512-of-some-kind"]
    assert by_name["skylake-avx512"]["vector bits"] == 512


def test_an_unknown_machine_has_usual_numbers() -> None:
    assert hardware_numbers({"kind": "llvm", "mcpu": "abacus"}) == hardware_numbers(
        {"kind": "llvm"}
    )
    assert min(hardware_numbers({"kind": "cuda"}).values()) > 0


def test_what_a_target_states_is_believed() -> None:
    stated = {**H200, "max_shared_memory_per_block": 232448, "max_threads_per_block": 512}
    numbers = hardware_numbers(stated)
    assert numbers["multiprocessors"] == 132 and numbers["shared memory"] == 232448
    assert numbers["threads"] == 512 and numbers["warp"] == 32


def test_every_number_is_a_word_of_its_own() -> None:
    for target in (H200, json.loads('{"kind":"llvm","mcpu":"haswell","num-cores":4}')):
        words = platform_words(target)
        assert len(words) == len(hardware_numbers(target)) == 5
        assert len(np.unique(words[:, AT["part"]])) == 5
    cores = platform_words({"kind": "llvm", "num-cores": 4})[0]
    assert cores[AT["twos"]] == 2


def test_machines_that_differ_are_told_apart() -> None:
    few, many = (platform_words({"kind": "llvm", "num-cores": n}) for n in (2, 16))
    assert not np.array_equal(few, many)
