"""The contract of feature sets: every registered one is tried on CPU and GPU sketches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest

from tensorese.features.base import (
    FeatureError,
    FeatureSet,
    Ragged,
    extract,
    extractor,
    feature_set,
    feature_sets,
    of_programs,
)
from tensorese.features.physics import features_hash
from tensorese.features.programs import Encoded, ProgramSet, read_programs
from tensorese.records.store import Store

pytestmark = pytest.mark.null

# A version in here is stored in model folders: a change refuses them all.
VERSIONS = {
    "physics-cpu": features_hash("cpu"),
    "physics-gpu": features_hash("gpu"),
    "physics-cuda": features_hash("cuda"),
}
