"""Which model a platform gets."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from models_support import physics_model

from tensorese.models.base import Card, load_model, save_model
from tensorese.models.catalog import choose, distance, kept_models, target_of, user_models
from tensorese.records.nouns import Platform
from tensorese.search.rankers.by_name import ranker_named

pytestmark = pytest.mark.null


def _keep(folder: Path, *platforms: str, targets: dict[str, str] | None = None) -> None:
    save_model(folder, physics_model(platforms), Card(targets=targets or {}))


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    _keep(tmp_path / "lake-1c", "lake-1c")
    _keep(tmp_path / "lake-16c", "lake-16c")
    _keep(tmp_path / "mtl-cpu", "lake-1c", "lake-16c")
    _keep(tmp_path / "h200", "h200", targets={"h200": '{"kind":"cuda","arch":"sm_90"}'})
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    return tmp_path


def test_its_own_model_first(shelf: Path) -> None:
    choice = choose(Platform(name="lake-16c"), [shelf])
    assert choice is not None
    assert (choice.folder.name, choice.head) == ("lake-16c", "lake-16c")
    assert choice.why == "trained on lake-16c"


def test_the_nearest_of_its_kind(shelf: Path) -> None:
    for name, head in (("lake-2c", "lake-1c"), ("lake-8c", "lake-16c"), ("zen-64c", "lake-16c")):
        choice = choose(Platform(name=name), [shelf])
        assert choice is not None
        assert (choice.folder.name, choice.head) == ("mtl-cpu", head), name
        assert name in choice.why and head in choice.why
    named = Platform(name="mine", target='{"kind":"llvm","mcpu":"lake","num-cores":12}')
    choice = choose(named, [shelf])
    assert choice is not None and choice.head == "lake-16c"
    gpu = choose(Platform(name="cuda-sm_89"), [shelf])
    assert gpu is not None and gpu.head == "h200"


def test_no_model_of_its_kind(shelf: Path) -> None:
    assert choose(Platform(name="rocm-gfx90a"), [shelf]) is None
    assert choose(Platform(name="mystery"), [shelf]) is None
    assert choose(Platform(name="lake-1c"), [shelf / "nothing"]) is None


def test_the_users_come_first(shelf: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    _keep(mine / "lake-1c", "lake-1c")
    choice = choose(Platform(name="lake-1c"), [mine, shelf])
    assert choice is not None and choice.folder == mine / "lake-1c"
    _keep(mine / "any-name", "lake-16c")
    choice = choose(Platform(name="lake-16c"), [mine, shelf])
    assert choice is not None and choice.folder == mine / "any-name"


def test_a_broken_folder_is_passed_over(shelf: Path) -> None:
    assert {kept.folder.name for kept in kept_models([shelf])} == {
        "lake-1c",
        "lake-16c",
        "mtl-cpu",
        "h200",
    }


def test_distances() -> None:
    two, four = target_of("lake-2c", "{}"), target_of("lake-4c", "{}")
    assert distance(two, four) == 1 and distance(two, two) == 0
    assert distance(two, target_of("zen-2c", "{}")) > distance(two, target_of("lake-96c", "{}"))
    assert distance(two, {"kind": "cuda"}) == math.inf == distance({}, {})


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [
        ("znver2-8c", "znver3-2c"),
        ("haswell-2c", "znver3-2c"),
        ("znver5-16c", "znver4-2c"),
        ("icelake-server-4c", "emeraldrapids-2c"),
    ],
)
def test_the_width_of_vectors_counts_before_the_maker(wanted: str, nearest: str) -> None:
    known = ("znver3-2c", "znver4-2c", "emeraldrapids-2c")
    gaps = {name: distance(target_of(wanted, "{}"), target_of(name, "{}")) for name in known}
    assert gaps[nearest] == min(gaps.values())
    assert (min(gaps, key=lambda name: gaps[name]) == "znver3-2c") == (nearest == "znver3-2c")


def test_users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert user_models() == tmp_path / "tensorese" / "models"


def test_a_trained_tlp_is_chosen_too(shelf: Path) -> None:
    from models_support import tlp_model

    from tensorese.features.matrix import MatrixSpec

    save_model(shelf / "mine", tlp_model(MatrixSpec(), ("pond-4c",)), Card())
    choice = choose(Platform(name="pond-4c"), [shelf])
    assert choice is not None and choice.folder.name == "mine"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_model_is_passed_over_and_named(shelf: Path, name: str) -> None:
    (shelf / "broken" / "config.json").unlink()
    damaged = shelf / "lake-16c" / name
    damaged.write_bytes(damaged.read_bytes()[:-40])
    _, line = ranker_named("auto", Platform(name="lake-16c"), [shelf])
    assert "passed over" in line and str(shelf / "lake-16c") in line
    assert "starting from the model mtl-cpu" in line and "\n" not in line


def test_a_model_folder_is_whole_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _keep(tmp_path / "m", "lake-1c")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        _keep(tmp_path / "m", "lake-1c", "lake-16c")
    assert load_model(tmp_path / "m").platforms == ("lake-1c",)
