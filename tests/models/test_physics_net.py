"""Networks on hardware features, run by numpy as torch runs them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from models_support import physics_model

from tensorese.arrays import Floats32
from tensorese.features.physics import feature_names
from tensorese.models.network import ProgramBatch
from tensorese.models.physics_net import CHUNK, gelu, opinions_of
from tensorese.training.physics import to_model, to_network

pytestmark = pytest.mark.null


def _features(n: int = 300) -> Floats32:
    rng = np.random.default_rng(0)
    return rng.normal(0, 6, (n, len(feature_names("cpu")))).astype(np.float32)


def test_numpy_and_torch_agree() -> None:
    model, features = physics_model(), _features(CHUNK + 5)
    nobody = torch.zeros(len(features), dtype=torch.int64)
    values = torch.from_numpy(features)
    batch = ProgramBatch(sketches=None, sketch_N=nobody, values_NV=values)  # type: ignore[arg-type]
    with torch.inference_mode():
        outputs_NHM = to_network(model).eval()(batch)
    for head, platform in enumerate(model.platforms):
        outputs = outputs_NHM[:, head].unflatten(-1, (-1, 2)).numpy()
        np.testing.assert_allclose(
            opinions_of(outputs).mean(1), model.rank(features, platform), atol=1e-5
        )
    assert np.ptp(model.rank(features, platform)) > 0.1  # weights that say nothing agree too


def test_there_and_back_is_the_same_model() -> None:
    model, features = physics_model(), _features()
    again = to_model(to_network(model))
    np.testing.assert_array_equal(model.rank(features, "one-1c"), again.rank(features, "one-1c"))


def test_one_head_of_several_says_what_it_said() -> None:
    model, features = physics_model(), _features()
    one = model.with_head("two-2c", name="new")
    assert one.platforms == ("new",) and one.size() < model.size()
    np.testing.assert_array_equal(one.rank(features, "new"), model.rank(features, "two-2c"))
    assert np.abs(one.rank(features, "new") - model.rank(features, "one-1c")).max() > 0.01


def test_gelu_is_exact_enough() -> None:
    x = np.linspace(-8, 8, 2001, dtype=np.float32)
    wanted = torch.nn.functional.gelu(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(gelu(x), wanted, atol=2e-6)
