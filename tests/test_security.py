"""What docs/security.md says of the source, checked in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SESSION = "onnxruntime.InferenceSession("
FOLDERS = ("src", "benchmarks", "tests", "tools")

pytestmark = pytest.mark.null


def session_makers() -> Iterator[tuple[str, str]]:
    """Every function that makes a session of onnxruntime: its file and its text."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if SESSION not in text or path == Path(__file__):
                continue
            for node in ast.walk(ast.parse(text)):
                inside = ast.get_source_segment(text, node) if is_function(node) else None
                if inside and SESSION in inside:
                    yield str(path.relative_to(ROOT)), inside


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef)


def test_wherever_onnxruntime_makes_a_session_its_telemetry_is_off() -> None:
    makers = list(session_makers())
    assert len({file for file, _ in makers}) >= 3
    for file, text in makers:
        before, _, _ = text.partition(SESSION)
        assert "onnxruntime.disable_telemetry_events()" in before, file


def calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node


def test_the_package_unpickles_nothing() -> None:
    read = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text()
        assert "import pickle" not in text and "import cloudpickle" not in text, path
        for call in calls(path):
            name = ast.unparse(call.func)
            options = {word.arg: ast.unparse(word.value) for word in call.keywords}
            if name == "torch.load":
                assert options.get("weights_only") == "True", path
                read.append(path.name)
            if name in ("np.load", "numpy.load"):
                assert options.get("allow_pickle") == "False", path
    assert read == ["pt2.py"], "docs/security.md names the one place"
