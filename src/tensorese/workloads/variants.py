"""One network at several shapes: `zoo:bert_tiny@1x{32,64}`, `--shape ids=1x{32,64}`.

Alternatives in braces vary together: the first of each make the first shape, and so on. Every
shape is a network of its own with the same weights; `merged` makes one module of all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorese.tvm_env import import_tvm
from tensorese.workloads.errors import NetworkError
from tensorese.workloads.load import load_network
from tensorese.workloads.network import Network

_BRACES = re.compile(r"\{([^{}]*)\}")
_EXAMPLE = "for example --shape 'ids=1x{32,64,128}'"
Shapes = Mapping[str, Sequence[int] | Sequence[Sequence[int]]]


def expand(text: str) -> list[str]:
    """`a{1,2}b{3,4}` to `a1b3` and `a2b4`; what has no braces, or is a file, to itself."""
    groups = [group.split(",") for group in _BRACES.findall(text)]
    if not groups or Path(text).exists():
        return [text]
    counts = {len(group) for group in groups}
    if len(counts) > 1 or not all(all(group) for group in groups):
        raise NetworkError(f"braces must list as many values each, but got {text!r}; {_EXAMPLE}")
    return [_filled(text, [group[at] for group in groups]) for at in range(counts.pop())]


def _filled(text: str, values: Sequence[str]) -> str:
    left = iter(values)
    return _BRACES.sub(lambda _: next(left), text)


def braced(texts: Sequence[str]) -> str:
    """What `expand` makes these of."""
    parts = [re.split(r"(\d+)", text) for text in texts]
    if len({len(part) for part in parts}) > 1:
        raise NetworkError(f"shapes must have equal ranks, but got {' and '.join(texts)}")
    columns = zip(*parts, strict=True)
    return "".join(c[0] if len(set(c)) == 1 else f"{{{','.join(c)}}}" for c in columns)


def load_variants(
    spec: Any,
    *,
    shapes: Shapes | None = None,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    values: Mapping[str, float | Sequence[float]] | None = None,
) -> list[Network]:
    """As `load_network`, once for every shape that braces, or lists of shapes, name."""
    texts = expand(str(spec)) if isinstance(spec, str | Path) else [spec]
    listed = {name: _several(shape) for name, shape in (shapes or {}).items()}
    sizes = {n: [size] if isinstance(size, int) else list(size) for n, size in (dims or {}).items()}
    counts = {len(one) for one in (texts, *listed.values(), *sizes.values())} - {1}
    if len(counts) > 1 or 0 in counts:
        raise NetworkError(
            f"every input must be given as many shapes, but got {sorted(counts)}; {_EXAMPLE}"
        )
    networks = [
        load_network(
            texts[at % len(texts)],
            shapes={name: one[at % len(one)] for name, one in listed.items()},
            dims={name: one[at % len(one)] for name, one in sizes.items()},
            values=values,
        )
        for at in range(counts.pop() if counts else 1)
    ]
    _check_alike(networks)
    return networks


def source_of_all(networks: Sequence[Network]) -> str:
    """What `load_variants` takes to read them again; empty for what is no file."""
    sources = [network.source for network in networks]
    return braced(sources) if all(sources) else ""


def _several(shape: Sequence[int] | Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    if any(isinstance(one, Sequence) for one in shape):
        return [tuple(one) for one in shape]  # type: ignore[arg-type]
    return [tuple(shape)]  # type: ignore[arg-type]


def _check_alike(networks: Sequence[Network]) -> None:
    """One library takes the same inputs at every shape, and no shape twice."""
    kinds = {tuple((one.name, one.spec.dtype) for one in n.inputs) for n in networks}
    shapes = [tuple(one.spec.shape for one in n.inputs) for n in networks]
    if len(kinds) > 1:
        raise NetworkError(f"{networks[0].name} must have the same inputs at every shape")
    if len(set(shapes)) < len(shapes):
        raise NetworkError(f"every shape must be given once, but got {shapes}; {_EXAMPLE}")


def entry_name(at: int, n: int) -> str:
    """The function of a library that computes one of `n` shapes."""
    return "main" if n == 1 else f"main_{at}"


def merged(modules: Sequence[Any]) -> Any:
    """Prepared modules as one, with an entry function each; equal kernels are there once, and TVM
    stores equal constants once."""
    if len(modules) == 1:
        return modules[0]
    tvm = import_tvm()
    relax = tvm.relax
    names: dict[Any, Any] = {}

    @relax.expr_functor.mutator
    class Renamer(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        def visit_global_var_(self, var: Any) -> Any:
            return names.get(var, var)

    renamer = Renamer(tvm.IRModule({}))
    for at, module in enumerate(modules):
        entry = entry_name(at, len(modules))
        for var, function in module.functions.items():
            if not isinstance(function, relax.Function):
                names[var] = renamer.builder_.add_func(function, var.name_hint)
        for var, function in module.functions.items():
            if isinstance(function, relax.Function):
                if str(var.name_hint) != "main":
                    raise NetworkError(f"a prepared network has one function, but also {var}")
                whole = renamer.visit_expr(function).with_attr("global_symbol", entry)
                renamer.builder_.add_func(whole, entry)
    return renamer.builder_.get()
