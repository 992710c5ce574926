"""Probes: favourites, doubtful ones and strangers, no two alike."""

from __future__ import annotations

import numpy as np
import pytest

from tensorese.onboard.probes import choose_probes, spread_tasks

pytestmark = pytest.mark.null


def test_favourites_and_strangers_take_turns() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 5))
    speeds = np.repeat(-features[:, :1] - 3, 4, axis=1)
    chosen = choose_probes(features, speeds, 20)
    assert len(set(chosen.tolist())) == 20
    fastest = set(np.argsort(-speeds[:, 0])[:10].tolist())
    assert 6 <= len(fastest & set(chosen.tolist())) <= 14
    # The rest cover the space: nobody is far from all of them.
    drawn = rng.choice(200, 20, replace=False)
    gaps = [
        np.abs(features[:, None] - features[picked][None]).sum(2).min(1).max()
        for picked in (chosen, drawn)
    ]
    assert gaps[0] < gaps[1] + 1.0


def test_doubt_draws_probes() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(300, 3))
    speeds = np.full((300, 4), -1.0)
    speeds[150:] += rng.normal(0, 2, (150, 4))
    speeds[150:] -= speeds[150:].mean(1, keepdims=True) + 1.0  # as fast on the whole
    chosen = choose_probes(features, speeds, 30)
    assert (chosen >= 150).sum() > 18


def test_known_programs_are_not_asked_again() -> None:
    features = np.array([[0.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    speeds = np.full((3, 2), -1.0)
    chosen = choose_probes(features, speeds, 2, known=features[:2])
    assert chosen[0] == 2 or chosen[1] == 2
    assert len(choose_probes(features, speeds, 9)) == 3


def test_classes_take_turns() -> None:
    classes = ["conv", "conv", "conv", "dense", "pool", "dense"]
    assert spread_tasks(classes, 3) == [0, 3, 4]
    assert spread_tasks(classes, 5) == [0, 1, 3, 4, 5]
    assert spread_tasks(classes, 99) == list(range(6))
    assert spread_tasks([], 3) == []
