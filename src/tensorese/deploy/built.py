"""A run's network on its way to a library."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tensorese.deploy.apply import Applied, apply_programs, kernels_of, normalised
from tensorese.deploy.build import build_library
from tensorese.deploy.folder import TunedRun
from tensorese.deploy.library import Argument, Signature
from tensorese.records.run_entries import BestProgram
from tensorese.workloads import prepare
from tensorese.workloads.attention_kernels import is_attention
from tensorese.workloads.winograd_kernels import is_transform

_COARSE = ("bfloat16", "float16", "float32", "float64")


@dataclass(frozen=True, kw_only=True, eq=False)
class Built:
    """The prepared network at one shape, and with all its shapes and the run's programs applied."""

    run: TunedRun
    network: Any
    prepared: Any
    whole: Any
    """All shapes of the network, prepared, as one module; `prepared` where there is one shape."""
    applied: Applied
    """The run's programs in `whole`."""
    entry: str = "main"
    """The function of the library that computes this shape."""
    packed: bool = True
    """Whether constant weights are in the order the programs chose."""
    graphs: bool = False
    """Whether a GPU gets the library's kernels as one CUDA graph."""

    def build(self, path: Path) -> Path:
        """The tuned library."""
        target = self.run.target
        build_library(self.applied.module, target, path, graphs=self.graphs)
        return path

    def without(self, workload: str) -> Built:
        """The same with one task's kernels untuned."""
        return self.taking({id_: one for id_, one in self.run.best.items() if id_ != workload})

    def taking(self, best: Mapping[str, BestProgram]) -> Built:
        """The same with other programs."""
        run = replace(self.run, best=best)
        applied = apply_programs(self.whole, best, run.target, prepack=self.packed)
        return replace(self, run=run, applied=applied)

    def contender(self, library: Path, *, entry: str = "") -> dict[str, Any]:
        """The message that makes a process run a library of this network."""
        signature = self.signature.to_dict() | {"entry": entry or self.entry}
        return {"kind": "library", "library": str(library), "signature": signature}

    def as_in(self, other: Built) -> Built:
        """This shape in the library that `other`, another shape, was rebuilt into."""
        run = replace(self.run, best=other.run.best)
        return replace(self, run=run, applied=other.applied, graphs=other.graphs)

    @property
    def shape(self) -> str:
        """For people."""
        return ", ".join(str(one).rpartition(" ")[0] for one in self.signature.inputs)

    @cached_property
    def otherwise(self) -> dict[str, bool]:
        """What is computed otherwise than the network says."""
        modules = [normalised(f) for f in kernels_of(self.prepared).values()]
        tests = {"winograd": is_transform, "attention": is_attention}
        return {name: any(map(test, modules)) for name, test in tests.items()}

    @cached_property
    def direct(self) -> Any:
        """Prepared with every operator as it is written: what the result is judged by."""
        if not any(self.otherwise.values()):
            return self.prepared
        return prepare(self.network.module, self.run.target, prepack=self.run.prepack)

    @cached_property
    def depth(self) -> dict[str, int]:
        """What errors grow with: kernel calls of one inference, terms of the longest sum."""
        reference = importlib.import_module("tensorese.measure.reference")
        weights = [int(task["weight"]) for task in self.run.tasks]
        modules = [normalised(f) for f in kernels_of(self.direct).values()]
        longest = max((reference.reduction_length(module) for module in modules), default=1)
        return {"kernels": sum(weights), "reduction": int(longest)}

    @cached_property
    def precision(self) -> str:
        """The coarsest type any kernel reads or writes."""
        kernels = kernels_of(self.direct).values()
        types = {str(p.ty.dtype) for kernel in kernels for p in kernel.params}
        return next((name for name in _COARSE if name in types), "float32")

    @cached_property
    def signature(self) -> Signature:
        inputs = [
            Argument(name=one.name, shape=one.spec.shape, dtype=one.spec.dtype)
            for one in self.network.inputs
        ]
        returned = self.prepared["main"].ret_ty
        fields = list(getattr(returned, "fields", [returned]))
        outputs = [
            Argument(
                name=f"output{index}",
                shape=tuple(int(extent) for extent in field.shape),
                dtype=str(field.dtype),
            )
            for index, field in enumerate(fields)
        ]
        return Signature(
            target=self.run.target,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            entry=self.entry,
        )
