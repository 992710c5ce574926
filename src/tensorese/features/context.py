"""What a model reads of a task beside its program: element types and sizes."""

from __future__ import annotations

from tensorese.features.matrix import Context
from tensorese.language.accesses import blocks_of
from tensorese.records.nouns import Workload


def context_of(workload: Workload) -> Context:
    """Element types, argument sizes, numeric attributes by sorted name. No operator name."""
    sizes = [size for arg in workload.args for size in arg.shape]
    numbers = [workload.attributes[name] for name in sorted(workload.attributes)]
    flat = [x for item in numbers for x in (item if isinstance(item, list | tuple) else [item])]
    sizes.extend(int(x) for x in flat if isinstance(x, int | float))
    return Context(
        dtypes=tuple(dict.fromkeys(arg.dtype for arg in workload.args)),
        sizes=tuple(sizes),
        shapes=tuple(tuple(arg.shape) for arg in workload.args),
        blocks=blocks_of(workload.module),
    )
