"""The house stays within the budgets of `tools/size.py`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import size

pytestmark = pytest.mark.null


@pytest.mark.skipif(not (size.ROOT / ".git").exists(), reason="git says which files are tracked")
def test_everything_is_within_its_budget(capsys: pytest.CaptureFixture[str]) -> None:
    status = size.main()
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert "workloads" in printed and "tracked files" in printed


def test_what_is_larger_than_its_budget_or_has_none_is_named() -> None:
    counts = {"cli": 11, "attic": 1, "records": 10}
    assert size.over_budget(counts, {"cli": 10, "records": 10}, "lines") == [
        "attic: 1 lines, budget 0",
        "cli: 11 lines, budget 10",
    ]


def test_counts_are_by_room_and_by_folder(tmp_path: Path) -> None:
    files = {
        "src/tensorese/cli/tune.py": "a\nb\n",
        "src/tensorese/collect/fleet/node.py": "a\n",
        "src/tensorese/errors.py": "a\n",
        "tests/test_a.py": "a\nb\nc\n",
        "benchmarks/results/a.json": "12345",
        "docs/a.md": "12",
        "docs/log/2026-11.md": "1234",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    (tmp_path / "src/tensorese/stray.py").write_text("not tracked")
    tracked = size.tracked(tmp_path)
    assert tracked == sorted(files)
    rooms, tops = size.line_counts(tmp_path, tracked)
    assert rooms == {"cli": 2, "collect": 1, "modules": 1}
    assert tops == {"src": 4, "tests": 3}
    total = sum(map(len, files.values()))
    assert size.byte_counts(tmp_path, tracked) == {
        "benchmarks/results": 5,
        "docs": 2,
        "tracked files": total,
    }
