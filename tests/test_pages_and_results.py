"""Pages and result files belong together: nothing unnamed is kept, nothing missing is named."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "benchmarks/results/"
ROOMS = "benchmarks|docs|data|examples|src|tests|tools"
# A path begins where no other path is under way: `runs/docs/x` and `my-data/x` are not ours.
PATH = re.compile(rf"(?<![\w./-])(?:{ROOMS})/[\w.*-]+(?:/[\w.*-]+)*/?")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)

pytestmark = pytest.mark.null


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def named_in(text: str, folder: Path) -> Iterator[Path]:
    """What a page in `folder` names: paths from the root, and its relative links."""
    for match in PATH.finditer(LINK.sub("]", text)):
        yield ROOT / match.group().rstrip("/.")
    for match in LINK.finditer(CODE.sub("", text)):  # `f["main"](x)` is no link
        if "://" not in match.group(1):
            yield (folder / match.group(1)).resolve()


def tracked(folder: str) -> list[str]:
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if said.returncode:
        pytest.skip("the tree is no git checkout")
    return [name for name in said.stdout.splitlines() if (ROOT / name).exists()]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    missing = []
    for path in named_in(page.read_text(), page.parent):
        name = str(path.relative_to(ROOT))
        if not (list(ROOT.glob(name)) if "*" in name else path.exists()):
            missing.append(name)
    assert not missing, f"{page.relative_to(ROOT)} names {missing}; mend the page or add the file"


def test_result_files_are_named_by_a_page() -> None:
    named = {path for page in pages() for path in named_in(page.read_text(), page.parent)}
    unnamed = [name for name in tracked(RESULTS) if ROOT / name not in named]
    assert not unnamed, f"no page names {unnamed}; name them in docs/benchmarks.md or remove them"


def test_results_are_in_a_folder_of_their_benchmark() -> None:
    """`benchmarks/results/SCRIPT/MACHINE.suffix`; or a command of the package, or a tool."""
    makers = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    makers |= {path.stem for path in (ROOT / "src" / "tensorese" / "cli").glob("*.py")}
    makers |= {path.stem for path in (ROOT / "tools").iterdir()}
    strays = [
        name
        for name in tracked(RESULTS)
        if len(parts := name.removeprefix(RESULTS).split("/")) != 2 or parts[0] not in makers
    ]
    assert not strays, f"{strays} belong to no script; move or remove them"


def test_names_are_read_from_pages() -> None:
    text = "`benchmarks/results/a/b.json`, [c](../docs/d.md#e), runs/docs/x, https://data/y."
    assert list(named_in(text, ROOT / "docs")) == [
        ROOT / "benchmarks/results/a/b.json",
        ROOT / "docs/d.md",
    ]
