"""Rooms import what the table of `docs/architecture.md` allows them, and nothing else."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from imports_support import PACKAGE, Import, imports_of, package_imports

pytestmark = pytest.mark.null

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / PACKAGE
PAGE = ROOT / "docs" / "architecture.md"

EVERYWHERE = {"arrays", "errors", "interrupts", "pages", "scratch", "__version__"}
"""What every room may import; these modules import nothing of ours themselves."""

REACHES_TVM = {"tvm", "tvm_ffi", "tvm_env", "identity", "targets"}
"""What `tvm` stands for in the table: the library and the modules that lead to it."""

DOORS = {"__init__", "__main__"}
"""The package's own doors: they lead to `api` and `cli`."""

# Imports that the table does not allow and that are still there: (file, what it imports).
KNOWN: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Allowed:
    """One row of the table: names that may be imported, and those only inside functions."""

    names: frozenset[str]
    lazily: frozenset[str]

    def allows(self, module: str, how: str) -> bool:
        """`module` without the package's name; a listed `measure.base` opens that module alone."""
        names = self.names | (self.lazily if how != "top" else frozenset())
        parts = module.split(".")
        if parts[0] in REACHES_TVM and "tvm" in names:
            return True
        return any(".".join(parts[:end]) in names for end in range(1, len(parts) + 1))


def read_table(page: str) -> dict[str, Allowed]:
    """Room to what it may import; `every room` stands for all rooms of the table."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| `")
    ]
    rooms = {name: row[-1] for row in rows for name in _rooms(row[0])}
    return {room: _allowed(cell, set(rooms) - {room}) for room, cell in rooms.items()}


def _rooms(cell: str) -> list[str]:
    return [name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`([^`]+)`", cell)]


def _allowed(cell: str, others: set[str]) -> Allowed:
    listed = re.findall(r"`([^`]+)`( \(lazily)?", cell)
    names = {name for name, lazily in listed if not lazily}
    if "every room" in cell:
        names |= others
    return Allowed(frozenset(names), frozenset(name for name, lazily in listed if lazily))


def room_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def target_of(seen: Import) -> str:
    """What is imported, without the package's name; empty for what no rule is about."""
    module, _, rest = seen.module.partition(".")
    if module != PACKAGE:
        return "" if module in sys.stdlib_module_names else seen.module
    if seen.module == PACKAGE:
        return "api"  # `tensorese.tune` and `tensorese.load` live there
    if seen.module == f"{PACKAGE}.":
        return "a computed name"
    room = rest.split(".")[0]
    is_ours = (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").is_file()
    # In a string `tensorese.load` is a name that users know, not a module.
    return rest if rest and (is_ours or seen.how != "string") else ""


def is_wrong(seen: Import, table: Mapping[str, Allowed]) -> bool:
    room, target = room_of(seen.file), target_of(seen)
    first = target.split(".")[0]
    if not target or first in EVERYWHERE or first == room:
        return False
    return room not in table or not table[room].allows(target, seen.how)


def known(seen: Import) -> set[tuple[str, str]]:
    """The entries of `KNOWN` that excuse this import."""
    target = f"{target_of(seen)}."
    return {(file, to) for file, to in KNOWN if file == seen.file and target.startswith(f"{to}.")}


def cycle_in(edges: Iterable[tuple[str, str]]) -> list[str]:
    """The rooms of one cycle, in order; empty where there is none."""
    graph: dict[str, set[str]] = {}
    for source, target in edges:
        graph.setdefault(source, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.fixture(scope="module")
def table() -> dict[str, Allowed]:
    return read_table(PAGE.read_text())


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return [seen for seen in package_imports(SOURCE) if room_of(seen.file) not in DOORS]


def test_every_room_is_in_the_table(table: dict[str, Allowed]) -> None:
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    modules = {path.stem for path in SOURCE.glob("*.py")} - DOORS
    assert (rooms | modules) - set(table) == set()
    assert set(table) - (rooms | modules) == set(), "rooms that do not exist"


def test_rooms_import_only_what_the_table_allows(
    table: dict[str, Allowed], imports: list[Import]
) -> None:
    wrong = [seen for seen in imports if is_wrong(seen, table) and not known(seen)]
    assert not wrong, "not allowed by docs/architecture.md:\n" + "\n".join(map(str, wrong))


def test_known_exceptions_still_exist(table: dict[str, Allowed], imports: list[Import]) -> None:
    excused = {entry for seen in imports if is_wrong(seen, table) for entry in known(seen)}
    assert KNOWN - excused == set(), "no longer there: take them out of KNOWN"


def test_no_cycle_of_rooms(table: dict[str, Allowed], imports: list[Import]) -> None:
    """In the table at all; in the code among the imports that run when a module is imported."""
    planned = [
        (room, name.split(".")[0])
        for room, row in table.items()
        for name in row.names | row.lazily
        if name.split(".")[0] in table
    ]
    assert cycle_in(planned) == []
    edges = [
        (room_of(seen.file), room)
        for seen in imports
        if seen.how == "top" and not known(seen)
        if (room := target_of(seen).split(".")[0]) in table and room != room_of(seen.file)
    ]
    assert len(set(edges)) > 20, "imports are not read"
    assert cycle_in(edges) == []


PAGE_SAMPLE = """
| room | owns | may import |
|---|---|---|
| `low/` | the floor | `numpy` |
| `high/` | the roof | `low`, `other.contract`, `tvm` (lazily: builds) |
| `verbs/` | the door | every room |
"""


@pytest.mark.parametrize(
    ("room", "target", "how", "allowed"),
    [
        ("low", "numpy", "top", True),
        ("low", "high", "lazy", False),
        ("high", "low.deep", "top", True),
        ("high", "other", "top", False),
        ("high", "other.contract", "top", True),
        ("high", "other.contract.Name", "typing", True),
        ("high", "other.inside", "top", False),
        ("high", "tvm_env", "top", False),
        ("high", "tvm.ir", "lazy", True),
        ("high", "tvm_env", "string", True),
        ("verbs", "high.deep", "top", True),
        ("verbs", "torch", "lazy", False),
    ],
)
def test_the_table_is_read(room: str, target: str, how: str, allowed: bool) -> None:
    assert read_table(PAGE_SAMPLE)[room].allows(target, how) is allowed


MODULE_SAMPLE = '''
"""Prose about `tensorese.search.loop` imports nothing."""
import torch
from tensorese.records.store import Store
from tensorese import lowering
if TYPE_CHECKING:
    from tensorese.models.tlp import TLP
else:
    from tensorese.models import TLP
def run() -> None:
    """More prose: tensorese.search."""
    from ..space import tiles
    importlib.import_module("tensorese.measure.farm")
    __import__("tvm")
    subprocess.run([sys.executable, "-m", "tensorese.deploy.worker"])
    subprocess.run([sys.executable, "-c", "from tensorese.report import write_report"])
    importlib.import_module(f"tensorese.{name}")
'''


def test_every_way_to_import_is_seen() -> None:
    seen = [(each.module, each.how) for each in imports_of(MODULE_SAMPLE, "collect/farm.py")]
    assert seen == [
        ("torch", "top"),
        ("tensorese.records.store.Store", "top"),
        ("tensorese.lowering", "top"),
        ("tensorese.models.tlp.TLP", "typing"),
        ("tensorese.models.TLP", "top"),
        ("tensorese.space.tiles", "lazy"),
        ("tensorese.measure.farm", "string"),
        ("tvm", "string"),
        ("tensorese.deploy.worker", "string"),
        ("tensorese.report", "string"),
        ("tensorese.", "string"),
    ]


def test_a_computed_name_and_an_unknown_room_are_wrong() -> None:
    table = read_table(PAGE_SAMPLE)
    assert is_wrong(Import("verbs/a.py", 1, "tensorese.", "string"), table)
    assert is_wrong(Import("attic/a.py", 1, "tensorese.records", "lazy"), table)
    assert not is_wrong(Import("verbs/a.py", 1, "tensorese.load", "string"), table)


def test_cycles_are_found() -> None:
    assert cycle_in([("a", "b"), ("b", "c")]) == []
    assert set(cycle_in([("a", "b"), ("b", "c"), ("c", "a")])) == {"a", "b", "c"}
