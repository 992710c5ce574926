from __future__ import annotations

from typing import Any

import pytest

from tensorese.measure.rotation import SPAN, Rotation, copies, turning

pytestmark = pytest.mark.null

MIB = 1 << 20


def test_weights_turn_and_activations_stay() -> None:
    assert turning([MIB, MIB, 256, 2 * MIB, MIB]) == [1, 3]
    assert turning([MIB, MIB]) == []


def test_copies_span_more_than_the_near_caches() -> None:
    assert copies([MIB, 4 * MIB, MIB]) * 4 * MIB >= SPAN
    assert copies([MIB, 64 * MIB, MIB]) == 1
    assert copies([MIB, 64, MIB]) == 1
    assert copies([MIB, 40 << 10, MIB]) < 200


def test_every_run_gets_the_next_set() -> None:
    seen: list[Any] = []
    finished: list[int] = []
    rotation = Rotation([["a"], ["b"], ["c"]], lambda: finished.append(len(seen)))
    samples = rotation.sample(seen.append, 2, 3)
    assert seen == ["a", "b", "c", "a", "b", "c"]
    assert finished == [2, 4, 6] and len(samples) == 3 and min(samples) > 0
