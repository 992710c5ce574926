"""exp, erf, tanh and sigmoid as polynomials that run in vector registers.

LLVM calls the C library for them, element by element: 65536 values of erf take 2.1 ms on a core,
as polynomials 0.02. They are put in when a kernel is lowered, so a workload, its FLOPs and its
reference say `erf` as before. Coefficients are minimax fits made for this file.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

# exp(r) = 1 + r + r^2 P(r) for |r| <= ln(2) / 2; relative error 3e-9 in exact arithmetic.
_EXP = (0.4999999341, 0.1666652011, 0.04166839422, 0.008368780429, 0.001381446674)
# tanh(x) = x + x^3 P(x^2) for |x| <= 0.625; 5e-9.
_TANH = (-0.3333328171, 0.1333143540, -0.05373911719, 0.02063704514, -0.005702610837)
# erf(x) = x P(x^2) for |x| <= 1; 2e-9.
_ERF_START = (1.128379166, -0.3761262582, 0.1128358515, -0.02685381193)
_ERF = (*_ERF_START, 0.005188327673, -8.010193513e-4, 7.853860982e-5)
# erf(x) = 1 - exp(P(x)) for 0.92 <= x <= 4; 2e-9.
_ERFC_START = (-2.070175591e-4, -1.127627361, -0.6372658234, -0.1038563080)
_ERFC = (*_ERFC_START, 0.02218974268, -0.003033683299, 1.949457673e-4)
_LOWEST, _HIGHEST = -87.0, 88.72284  # outside, exp is 0 or infinite
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.121944400546905e-4  # their sum is ln 2; n * HIGH is exact
_LEVEL = 20  # over TVM's own rules, which have 10


def register(tvm: Any) -> None:
    """From now on this process lowers the four so for `llvm`; other types as TVM does."""
    tirx = tvm.tirx
    made = Polynomials(tirx)
    rules = {"exp": made.exp, "erf": made.erf, "tanh": made.tanh, "sigmoid": made.sigmoid}
    op: Any = importlib.import_module("tvm.tirx.op")
    for name, rule in rules.items():
        lowered = _rule(tirx, name, rule)
        op.register_intrin_lowering(f"tirx.{name}", "llvm", f=lowered, level=_LEVEL)


def _rule(tirx: Any, name: str, polynomial: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def lower(call: Any) -> Any:
        x, dtype = call.args[0], str(call.ty)
        if dtype.partition("x")[0] == "float32":
            return polynomial(x)
        if name == "sigmoid":
            one = tirx.const(1.0, dtype)
            return one / (one + tirx.exp(-x))
        if name == "exp":
            return tirx.call_llvm_pure_intrin(dtype, "llvm.exp", x)
        if dtype == "float64":
            return tirx.call_pure_extern(dtype, name, x)
        wide = dtype.replace(dtype.partition("x")[0], "float32")
        return polynomial(x.astype(wide)).astype(dtype)

    return lower


class Polynomials:
    """Expressions over a `float32` or a vector of them."""

    def __init__(self, tirx: Any) -> None:
        self.tirx = tirx

    def exp(self, x: Any) -> Any:
        return self._named("x", x, self._exp)

    def sigmoid(self, x: Any) -> Any:
        one = self._const(1.0, x)
        return one / (one + self.exp(-x))

    def tanh(self, x: Any) -> Any:
        return self._named("x", x, self._tanh)

    def erf(self, x: Any) -> Any:
        return self._named("x", x, self._erf)

    def _exp(self, x: Any) -> Any:
        turns = self.tirx.floor(x * self._const(math.log2(math.e), x) + self._const(0.5, x))
        return self._named("n", turns, lambda n: self._bounded(x, self._grown(x, n)))

    def _grown(self, x: Any, n: Any) -> Any:
        """exp of the rest, times 2^n: through the exponent bits, less one that comes back last."""
        rest = (x - n * self._const(_LN2_HIGH, x)) - n * self._const(_LN2_LOW, x)
        integer = str(x.ty).replace("float", "int")
        bits = (n.astype(integer) + self.tirx.const(126, integer)) << self.tirx.const(23, integer)
        half = self.tirx.reinterpret(str(x.ty), bits)

        def grow(r: Any) -> Any:
            one = self._const(1.0, r)
            return (self._horner(_EXP, r) * r * r + r + one) * half * self._const(2.0, r)

        return self._named("r", rest, grow)

    def _bounded(self, x: Any, inside: Any) -> Any:
        select = self.tirx.Select
        above = select(x > self._const(_HIGHEST, x), self._const(math.inf, x), inside)
        known = select(x < self._const(_LOWEST, x), self._const(0.0, x), above)
        return select(x == x, known, x)  # what is no number stays none

    def _tanh(self, x: Any) -> Any:
        """Near 0 a polynomial, because 1 - 2 / (exp(2x) + 1) loses all digits there."""
        one, two = self._const(1.0, x), self._const(2.0, x)
        small = self._horner(_TANH, x * x) * x * x * x + x
        large = one - two / (self.exp(x * two) + one)
        return self.tirx.Select(self._size(x) < self._const(0.625, x), small, large)

    def _erf(self, x: Any) -> Any:
        small = self._horner(_ERF, x * x) * x
        size = self.tirx.min(self._size(x), self._const(4.0, x))
        positive = self._const(1.0, x) - self.exp(self._horner(_ERFC, size))
        minus = x < self._const(0.0, x)
        large = self.tirx.Select(minus, self._const(0.0, x) - positive, positive)
        kept = self.tirx.Select(self._size(x) < self._const(1.0, x), small, large)
        return self.tirx.Select(x == x, kept, x)

    def _size(self, x: Any) -> Any:
        return self.tirx.max(x, self._const(0.0, x) - x)

    def _const(self, value: float, like: Any) -> Any:
        return self.tirx.const(value, str(like.ty))

    def _horner(self, coefficients: Sequence[float], x: Any) -> Any:
        total = self._const(coefficients[-1], x)
        for coefficient in reversed(coefficients[:-1]):
            total = total * x + self._const(coefficient, x)
        return total

    def _named(self, name: str, value: Any, body: Callable[[Any], Any]) -> Any:
        """`body` over a variable: without one, the value's expression would be repeated in it."""
        var = self.tirx.Var(name, str(value.ty))
        return self.tirx.Let(var, value, body(var))
