"""What a module imports, however it says so: at the top, in a function, for types, by a string."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "tensorese"
_DOTTED = re.compile(rf"\b{PACKAGE}(?:\.\w+)+")
_COMPUTED = re.compile(rf"\b{PACKAGE}\.$")


@dataclass(frozen=True)
class Import:
    """One import: `lazy` in a function, `typing` for annotations only, `string` by its name."""

    file: str
    line: int
    module: str
    how: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module} ({self.how})"


def package_imports(source_root: Path) -> list[Import]:
    """Every import of every module below the package's folder."""
    return [
        seen
        for path in sorted(source_root.rglob("*.py"))
        for seen in imports_of(path.read_text(), path.relative_to(source_root).as_posix())
    ]


def imports_of(text: str, file: str) -> list[Import]:
    tree = ast.parse(text)
    return list(_walk(tree, file, "top", _docstrings(tree)))


def _walk(node: ast.AST, file: str, how: str, docstrings: set[int]) -> Iterator[Import]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        how = "typing" if how == "typing" else "lazy"
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.body:
            yield from _walk(child, file, "typing", docstrings)
        for child in node.orelse:
            yield from _walk(child, file, how, docstrings)
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        for module in _names(node, file):
            yield Import(file, node.lineno, module, how)
    elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
        for argument in node.args[:1]:
            if isinstance(argument, ast.Constant) and not str(argument.value).startswith(PACKAGE):
                yield Import(file, node.lineno, str(argument.value), "string")
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if id(node) not in docstrings:
            for module in _DOTTED.findall(node.value) + _COMPUTED.findall(node.value):
                yield Import(file, node.lineno, module, "string")
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, file, how, docstrings)


def _names(node: ast.Import | ast.ImportFrom, file: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        folders = [PACKAGE, *Path(file).parts[:-1]]
        base = ".".join([*folders[: len(folders) - node.level + 1], *filter(None, [base])])
    # `from tensorese import lowering` names a room; deeper, what follows may be a module too.
    if base.split(".")[0] == PACKAGE:
        return [f"{base}.{alias.name}" for alias in node.names]
    return [base]


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def _docstrings(tree: ast.AST) -> set[int]:
    """Ids of the string nodes that stand alone: prose, which imports nothing."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
