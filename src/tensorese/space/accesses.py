"""How a block's iterators enter an index: affinely, or through divisions."""

from __future__ import annotations

from typing import Any


class Access:
    """The iterators of one block."""

    def __init__(self, tvm: Any, iterators: Any) -> None:
        self.tvm = tvm
        self.variables = [iterator.var for iterator in iterators]
        self.analyzer = tvm.sym.Analyzer()
        for iterator in iterators:
            self.analyzer.bind(iterator.var, iterator.dom)

    def affine(self, index: Any) -> list[int] | None:
        """One coefficient per iterator, or None when the index is not affine."""
        simple = self.analyzer.simplify(index)
        coefficients = self.tvm.sym.detect_linear_equation(simple, self.variables)
        return [int(c) for c in coefficients[: len(self.variables)]] if coefficients else None

    def axes(self, index: Any) -> list[int]:
        """The iterators that occur in the index."""
        free = self.tvm.tirx.analysis.undefined_vars(self.analyzer.simplify(index))
        return [
            place
            for place, variable in enumerate(self.variables)
            if any(variable.same_as(one) for one in free)
        ]
