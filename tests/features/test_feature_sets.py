"""The contract of feature sets: every registered one is tried on CPU and GPU sketches."""

from __future__ import annotations

import pytest

from tensorese.features.physics import features_hash

pytestmark = pytest.mark.null

# A version in here is stored in model folders: a change refuses them all.
VERSIONS = {
    "physics-cpu": features_hash("cpu"),
    "physics-gpu": features_hash("gpu"),
    "physics-cuda": features_hash("cuda"),
}
