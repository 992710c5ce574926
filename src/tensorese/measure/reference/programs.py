"""Whole programs: walk an unscheduled module block by block, and re-lay weights as TVM would."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tensorese.measure.reference.blocks import LeafBlock, int_of
from tensorese.measure.reference.expressions import Array, Unsupported, np_dtype
from tensorese.measure.reference.reductions import run_block
from tensorese.measure.reference.verdict import seeded_inputs
from tensorese.records.nouns import TensorSpec

_PREPROC = "meta_schedule.layout_rewrite_preproc"


def evaluate(mod: Any, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of an unscheduled module's `main`, without TVM's code generator.

    `inputs` are the parameters that are not outputs, in order. Raises `Unsupported` rather than
    guess; buffers have their declared types, reductions accumulate in float64.
    """
    function = mod["main"]
    root = function.body.block if type(function.body).__name__ == "SBlockRealize" else None
    if root is None or root.iter_vars:
        raise Unsupported("a function without a root block")
    outputs = output_indices(mod)
    buffers = _bind_inputs(function, outputs, inputs)
    for buffer in [*root.alloc_buffers, *(function.params[k] for k in outputs)]:
        buffers[buffer] = np.zeros(_shape(buffer), _dtype(buffer))
    with np.errstate(all="ignore"):
        for block in _leaf_blocks(root.body, {}):
            run_block(block, buffers)
    return [buffers[function.params[k]] for k in outputs]


def reference_case(mod: Any, seed: int) -> tuple[list[Array], list[Array]]:
    """Seeded inputs and the outputs to expect of them.

    A root or logarithm of a signed input is NaN and would judge nothing: then inputs are redrawn
    positive.
    """
    for low in (-1.0, 0.1):
        inputs = seeded_inputs(input_specs(mod), seed, low=low)
        outputs = evaluate(mod, inputs)
        if not any(np.isnan(out).any() for out in outputs if out.dtype.kind not in "iub"):
            break
    return inputs, outputs


def relayout_inputs(scheduled_mod: Any, inputs: Sequence[Array]) -> list[Array]:
    """Inputs for the built form of a scheduled module whose weights changed layout.

    `RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)` drops each annotated copy block
    and gives the parameter the *shape of the copy*: the built function then expects what the
    block would have written. Call this on the module before that pass.
    """
    function, outputs = scheduled_mod["main"], output_indices(scheduled_mod)
    buffers = _bind_inputs(function, outputs, inputs)
    position = [k for k in range(len(function.params)) if k not in outputs]
    result = list(inputs)
    for node in _all_blocks(function.body):
        if _PREPROC not in node.annotations:
            continue
        source, target = node.reads[0].source, node.writes[0].source
        matches = [i for i, k in enumerate(position) if function.params[k].same_as(source)]
        if len(node.reads) != 1 or not matches:
            raise Unsupported(f"layout block {node.name_hint}, which copies no parameter")
        buffers[target] = np.zeros(_shape(target), _dtype(target))
        run_block(LeafBlock.of(node), buffers)
        result[matches[0]] = buffers[target]
    return result


def output_indices(mod: Any) -> list[int]:
    """Positions of the parameters of `main` that some block writes; scheduled or not."""
    function = mod["main"]
    written = [region.source for block in _all_blocks(function.body) for region in block.writes]
    return [k for k, param in enumerate(function.params) if any(param.same_as(w) for w in written)]


def input_specs(mod: Any) -> list[TensorSpec]:
    """Shapes and types of the parameters that are not outputs, in order."""
    function, outputs = mod["main"], output_indices(mod)
    return [
        TensorSpec(shape=_shape(param), dtype=str(param.ty.dtype))
        for k, param in enumerate(function.params)
        if k not in outputs
    ]


def reduction_length(mod: Any) -> int:
    """The most terms that any block of an unscheduled module adds into one element.

    A window whose size depends on where it is (a pool that does not divide its input) counts as
    the longest axis of any parameter: it spans no more.
    """
    shapes = [_shape(p) for p in mod["main"].params if hasattr(p.ty, "shape")]
    widest = max((extent for shape in shapes for extent in shape), default=1)
    lengths = [1]
    for node in _all_blocks(mod["main"].body):
        extents = [v.dom.extent for v in node.iter_vars if int(v.iter_type) == 2]
        known = [int(e) if type(e).__name__ == "IntImm" else widest for e in extents]
        lengths.append(math.prod(known))
    return max(lengths)


def _shape(buffer: Any) -> tuple[int, ...]:
    return tuple(int_of(extent) for extent in buffer.ty.shape)


def _dtype(buffer: Any) -> np.dtype[Any]:
    return np_dtype(str(buffer.ty.dtype))


def _bind_inputs(
    function: Any, outputs: Sequence[int], inputs: Sequence[Array]
) -> dict[Any, Array]:
    params = [p for k, p in enumerate(function.params) if k not in outputs]
    if any(not hasattr(p.ty, "shape") for p in params):
        raise Unsupported("a scalar parameter")
    if [(_shape(p), _dtype(p)) for p in params] != [(a.shape, a.dtype) for a in inputs]:
        wanted = [(_shape(p), str(p.ty.dtype)) for p in params]
        raise Unsupported(f"inputs unlike the parameters {wanted}")
    return dict(zip(params, inputs, strict=True))


def _leaf_blocks(statement: Any, loops: dict[Any, int]) -> Iterator[LeafBlock]:
    """Blocks in program order, each checked to visit its whole domain exactly once."""
    kind = type(statement).__name__
    if kind == "SeqStmt":
        for part in statement.seq:
            yield from _leaf_blocks(part, loops)
    elif kind == "For" and int(statement.kind) == 0 and int_of(statement.min) == 0:
        loops = {**loops, statement.loop_var: int_of(statement.extent)}
        yield from _leaf_blocks(statement.body, loops)
    elif kind == "SBlockRealize":
        block = LeafBlock.of(statement.block)
        _check_bindings(statement, block, loops)
        yield block
    else:
        raise Unsupported(f"statement {kind} outside a block")


def _check_bindings(realize: Any, block: LeafBlock, loops: dict[Any, int]) -> None:
    if str(realize.predicate) not in ("T.bool(True)", "True", "1"):
        raise Unsupported(f"predicate of block {block.name}")
    free = dict(loops)
    for value, bounds in zip(realize.iter_values, block.box, strict=True):
        if type(value).__name__ == "IntImm":
            whole = (int(value.value), int(value.value) + 1) == bounds
        else:
            whole = type(value).__name__ == "Var" and (0, free.pop(value, 0)) == bounds
        if not whole:
            raise Unsupported(f"binding {value} of block {block.name}")
    if any(extent != 1 for extent in free.values()):
        raise Unsupported(f"a loop that block {block.name} repeats under")


def _all_blocks(statement: Any) -> Iterator[Any]:
    """Every SBlock at any depth, in program order."""
    if statement is None:
        return
    if type(statement).__name__ == "SBlockRealize":
        yield statement.block
        yield from _all_blocks(statement.block.body)
    for part in getattr(statement, "seq", ()):
        yield from _all_blocks(part)
    for field in ("body", "then_case", "else_case"):
        yield from _all_blocks(getattr(statement, field, None))
