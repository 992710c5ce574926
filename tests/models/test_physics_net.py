"""Networks of physical features, run by numpy as torch runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tensorese.features.matrix import MatrixSpec
from tensorese.features.physics import feature_names
from tensorese.models.batch import ProgramBatch
from tensorese.models.disk import CONFIG, Card, ModelError
from tensorese.models.folder import load_model, save_model
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.physics_net import SmallModel, gelu
from tensorese.models.predict import as_batch, predict
from tensorese.models.tlp import TLP, TLPConfig
from tensorese.models.trunk import TrunkConfig

pytestmark = pytest.mark.null

PLATFORMS = ("one-1c", "two-2c")


def small_model(trunk: TrunkConfig | None = None, doubt: float = 0.0) -> MTLTLP:
    """Two networks and two heads with weights far from nothing."""
    torch.manual_seed(3)
    config = TLPConfig(
        trunk=trunk or TrunkConfig(),
        spec=MatrixSpec(length=1, names=1, numbers=4, machine="cpu"),
        members=0,
        physics_members=2,
        doubt=doubt,
    )
    model = MTLTLP(config, PLATFORMS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def _features(n: int = 300) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    rng = np.random.default_rng(0)
    count = len(feature_names("cpu"))
    return rng.normal(0, 6, (n, count)).astype(np.float32)


def _by_torch(model: TLP, features: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> ...:
    nobody = torch.zeros(len(features), dtype=torch.int64)
    values = torch.from_numpy(features)
    with torch.inference_mode():
        outputs = model(ProgramBatch(sketches=None, sketch_N=nobody, values_NV=values))  # type: ignore[arg-type]
        return model.score(outputs).numpy()


@pytest.mark.parametrize("doubt", [0.0, 1.0])
@pytest.mark.parametrize("knots", [0, 3])
def test_numpy_and_torch_agree(tmp_path: Path, knots: int, doubt: float) -> None:
    if knots and not hasattr(TrunkConfig(), "knots"):
        pytest.skip("trunks have no knots")
    trunk = TrunkConfig(knots=knots) if knots else TrunkConfig()
    model = small_model(trunk, doubt)
    save_model(tmp_path, model, Card())
    small, features = SmallModel(tmp_path), _features()
    wanted = _by_torch(model, features)
    for head in range(2):
        np.testing.assert_allclose(small.score(features, head), wanted[:, head], atol=1e-5)
    assert np.ptp(wanted) > 0.1  # weights that say nothing would agree too
    assert small.score(features[:0], 0).shape == (0,)


def test_half_precision_moves_little(tmp_path: Path) -> None:
    model = small_model()
    save_model(tmp_path / "whole", model, Card())
    save_model(tmp_path / "half", model, Card(), half=True)
    features = _features()
    whole, half = (SmallModel(tmp_path / name).score(features, 0) for name in ("whole", "half"))
    np.testing.assert_allclose(half, whole, atol=0.02)
    sizes = [(tmp_path / n / "model.safetensors").stat().st_size for n in ("half", "whole")]
    assert sizes[0] < 0.55 * sizes[1]
    loaded = load_model(tmp_path / "half").model
    np.testing.assert_allclose(_by_torch(loaded, features)[:, 0], half, atol=1e-5)


def test_speed_is_at_most_the_best(tmp_path: Path) -> None:
    save_model(tmp_path, small_model(), Card())
    speed = SmallModel(tmp_path).speed(_features(), 1)
    assert speed.shape == (300, 2) and (speed < 0).all()


def test_gelu_is_exact_enough() -> None:
    x = np.linspace(-8, 8, 2001, dtype=np.float32)
    wanted = torch.nn.functional.gelu(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(gelu(x), wanted, atol=2e-6)


def test_another_head_is_refused_by_name(tmp_path: Path) -> None:
    save_model(tmp_path, small_model(), Card())
    with pytest.raises(ModelError, match="did you mean 'two-2c'"):
        SmallModel(tmp_path).head_index("two-2d")


def test_other_networks_are_refused(tmp_path: Path) -> None:
    config = TLPConfig(trunk=TrunkConfig(width=32), spec=MatrixSpec(), members=1)
    save_model(tmp_path, TLP(config, ("one",)), Card())
    with pytest.raises(ModelError, match="physical features alone"):
        SmallModel(tmp_path)


def test_features_of_another_time_are_refused(tmp_path: Path) -> None:
    save_model(tmp_path, small_model(), Card())
    config = json.loads((tmp_path / CONFIG).read_text())
    config["matrix"]["machine"] = "cuda"
    (tmp_path / CONFIG).write_text(json.dumps(config))
    with pytest.raises(ModelError, match="features it was trained with"):
        SmallModel(tmp_path)
    config["matrix"]["machine"] = "quantum"
    (tmp_path / CONFIG).write_text(json.dumps(config))
    with pytest.raises(ModelError, match="none for 'quantum'"):
        SmallModel(tmp_path)


def test_torch_is_not_imported(tmp_path: Path) -> None:
    save_model(tmp_path, small_model(), Card())
    code = (
        "import sys, pathlib; from tensorese.search.rankers.by_name import guided; "
        f"guided(pathlib.Path({str(tmp_path)!r}), 'one-1c'); "
        "print(sys.modules.keys() & {'torch', 'tvm'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_matrix_model_still_predicts(tmp_path: Path) -> None:
    """`as_batch` and `predict` are what `tensorese eval` judges a shipped model with."""
    from synthetic_support import synthetic_measurements
    from tensorese.features.matrix import Encoder
    from tensorese.features.programs import encode_programs, read_programs
    from tensorese.records.store import Store

    with Store.open(tmp_path / "store", create=True) as store:
        store.ingest(synthetic_measurements(tasks=2, per_task=6))
        programs = read_programs([store])
    model = small_model()
    batch = as_batch(encode_programs(programs, Encoder(model.config.spec)))
    assert predict(model, batch, torch.arange(len(programs))).shape == (len(programs), 2)
