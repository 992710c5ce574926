from __future__ import annotations

from pathlib import Path

import pytest

from tensorese.records.networks import NetworksError, list_beside, read_networks

pytestmark = pytest.mark.null

DATA = Path(__file__).parents[2] / "data"


def test_the_task_list_says_who_uses_what() -> None:
    assert list_beside(DATA / "cpu") == DATA / "tasks.parquet"
    use = read_networks(DATA / "tasks.parquet")
    assert use.weights["bert_base@1x128"]["7ac7325c0ce4e6f6"] == 36
    assert use.names["7ac7325c0ce4e6f6"] == "matmul_add"
    mine = use.of({"7ac7325c0ce4e6f6"})
    assert mine.weights == {"bert_base@1x128": {"7ac7325c0ce4e6f6": 36}}


def test_json_has_weights_or_lists(tmp_path: Path) -> None:
    file = tmp_path / "networks.json"
    file.write_text('{"a": {"w": 2, "v": 0.5}, "b": ["w"]}')
    assert read_networks(file).weights == {"a": {"w": 2.0, "v": 0.5}, "b": {"w": 1.0}}
    assert list_beside(tmp_path) is None


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"a": 3}', '{"a": {"w": "often"}}', '{"a": {"w": 0}}', '{"a": {"w": NaN}}']
)
def test_anything_else_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "networks.json"
    file.write_text(text)
    with pytest.raises(NetworksError, match="is neither; correct it"):
        read_networks(file)


def test_a_file_that_is_none_or_no_task_list(tmp_path: Path) -> None:
    with pytest.raises(NetworksError, match="is no file"):
        read_networks(tmp_path / "nowhere.json")
    part = next((DATA / "cpu").glob("sketches-*.parquet"))
    with pytest.raises(NetworksError, match="has the columns"):
        read_networks(part)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes((DATA / "tasks.parquet").read_bytes()[:1000])
    with pytest.raises(NetworksError, match="has the columns"):
        read_networks(cut)
