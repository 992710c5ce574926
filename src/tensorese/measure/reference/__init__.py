"""An independent referee for tensor programs: numpy only, never TVM's code generator."""

from tensorese.measure.reference.expressions import Unsupported
from tensorese.measure.reference.programs import (
    evaluate,
    input_specs,
    output_indices,
    reduction_length,
    reference_case,
    relayout_inputs,
)
from tensorese.measure.reference.verdict import Verdict, compare, seeded_inputs, tolerance

__all__ = [
    "Unsupported",
    "Verdict",
    "compare",
    "evaluate",
    "input_specs",
    "output_indices",
    "reduction_length",
    "reference_case",
    "relayout_inputs",
    "seeded_inputs",
    "tolerance",
]
