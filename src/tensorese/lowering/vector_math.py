"""exp, erf, tanh and sigmoid as polynomials that run in vector registers.

LLVM calls the C library for them, element by element: 65536 values of erf take 2.1 ms on a core,
as a ratio of polynomials 0.03. They are put in when a kernel is lowered, so a workload, its FLOPs
and its reference say `erf` as before. Coefficients are minimax fits made for this file.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

# exp(r) = 1 + r + r^2 P(r) for |r| <= ln(2) / 2; relative error 3e-9 in exact arithmetic.
_EXP = (0.4999999341, 0.1666652011, 0.04166839422, 0.008368780429, 0.001381446674)
# erf(x) = x P(x^2) / Q(x^2) up to 3.92, where it is 1 in float32; 2e-8.
_ERF_TOP = (
    1.128379146,
    0.1904072825,
    0.05274883693,
    0.003765653719,
    2.848838569e-4,
    2.050084885e-6,
)
_ERF_BOTTOM = (1.0, 0.5020768012, 0.1141094544, 0.01496928971, 0.001162545008, 3.809174963e-5)
_ERF_END = 3.92
# tanh(x) = x P(x^2) / Q(x^2) up to 9; 2e-8.
_TANH_TOP = (0.9999999794, 0.1338102517, 0.003495587604, 2.060907498e-5, 1.335465330e-8)
_TANH_BOTTOM = (1.0, 0.4671434076, 0.02587698011, 3.285634021e-4, 7.776554549e-7)
_TANH_END = 9.0
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
        return self._named("x", x, lambda v: self._odd(v, _TANH_TOP, _TANH_BOTTOM, _TANH_END))

    def erf(self, x: Any) -> Any:
        return self._named("x", x, lambda v: self._odd(v, _ERF_TOP, _ERF_BOTTOM, _ERF_END))

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

    def _odd(self, x: Any, top: Sequence[float], bottom: Sequence[float], end: float) -> Any:
        """x P(x^2) / Q(x^2) within +-`end`, where it has reached +-1."""
        tirx = self.tirx

        def within(y: Any) -> Any:
            ratio = y * self._horner(top, y * y) / self._horner(bottom, y * y)
            one = self._const(1.0, y)
            clipped = tirx.max(tirx.min(ratio, one), -one)
            return tirx.Select(x == x, clipped, x)

        inside = tirx.max(tirx.min(x, self._const(end, x)), self._const(-end, x))
        return self._named("y", inside, within)

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
