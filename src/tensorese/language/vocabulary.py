"""Words to numbers, once for all models: types and names have fixed ids, strangers have their own.

The table is append-only. A type or name outside it becomes `UNKNOWN`; it is counted, and no
other id moves. A model stores the hash of the table it was trained with.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from tensorese.language.ansor import STEP_KINDS, UNROLL
from tensorese.language.primitive import canonical_json

PAD = 0
UNKNOWN = 1
FREE = 2  # a name its author may change at will: blocks, functions
_FIRST = 4  # 3 is reserved

VERSION = 1
TYPE_SLOTS = 96
NAME_SLOTS = 160

WORKLOAD_TYPE = "workload"  # not a primitive: the row that holds the task's shapes

# Types whose every name is the author's own choice.
FREE_NAMED = frozenset({"GetSBlock", "GetOutputBlock"})

_INSTRUCTIONS = (
    *("GetSBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers"),
    *("GetOutputBlocks", "SampleCategorical", "SamplePerfectTile", "SamplePartitionedTile"),
    *("SampleComputeLocation", "Merge", "Fuse", "Split", "LoopPartition", "Reorder"),
    *("ReorderBlockIterVar", "AddUnitLoop", "Parallel", "Vectorize", "Bind", "Unroll"),
    *("CacheRead", "CacheWrite", "ReindexCacheRead", "ReindexCacheWrite", "CacheInplace"),
    *("CacheIndex", "ReIndex", "ReadAt", "WriteAt", "ComputeAt", "ReverseComputeAt"),
    *("ComputeInline", "ReverseComputeInline", "DecomposeReduction", "RFactor"),
    *("StorageAlign", "SetScope", "UnsafeSetDType", "Blockize", "BlockizeBlocks", "Tensorize"),
    *("Annotate", "Unannotate", "TransformLayout", "TransformBlockLayout", "SetAxisSeparator"),
    *("DecomposePadding", "PadEinsum", "RollingBuffer", "AnnotateBufferAccess", "EnterPostproc"),
)
TYPES = (WORKLOAD_TYPE, *STEP_KINDS, *_INSTRUCTIONS)

NAMES = (
    *("local", "shared", "global", "warp", "shared.dyn", "texture", UNROLL, "None", "root", "main"),
    *("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"),
    *("vthread", "vthread.x", "vthread.y", "vthread.z"),
    *("SSRSRS", "SSRSR", "SSSRRSRS", "SSSRRS", "SSRSRSS", "SSSRS", "SSRS", "SRS"),
    *("meta_schedule.tiling_structure", "meta_schedule.cooperative_fetch"),
    *("meta_schedule.thread_extent_low_inclusive", "meta_schedule.thread_extent_high_inclusive"),
    *("meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit", "meta_schedule.parallel"),
    *("meta_schedule.vectorize", "meta_schedule.random_compute_producer"),
    *("meta_schedule.cross_thread_reduction", "meta_schedule.inline_rule"),
    *("meta_schedule.auto_tensorize", "meta_schedule.auto_tensorize_init"),
    *("meta_schedule.layout_rewrite_preproc", "meta_schedule.cache_type", "warp_execution"),
    *("software_pipeline_stage", "software_pipeline_order", "software_pipeline_async_stages"),
    *("pragma_auto_unroll_max_step", "pragma_unroll_explicit", "pragma_loop_partition_hint"),
    *("buffer_dim_align", "double_buffer_scope", "layout_free_buffers", "schedule_rule"),
    *("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator"),
    *("m16n8k8.matrixA", "m16n8k8.matrixB", "m16n8k8.matrixC"),
    *("float16", "float32", "float64", "bfloat16", "int8", "uint8", "int16", "int32", "int64"),
    *("bool", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"),
)


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The ids of types and names. `strangers` counts what had none, as `type:X` and `name:X`."""

    types: tuple[str, ...] = TYPES
    names: tuple[str, ...] = NAMES
    version: int = VERSION
    strangers: Counter[str] = field(default_factory=Counter, compare=False)

    def __post_init__(self) -> None:
        for what, words, slots in (
            ("types", self.types, TYPE_SLOTS),
            ("names", self.names, NAME_SLOTS),
        ):
            if len(set(words)) != len(words) or len(words) + _FIRST > slots:
                raise ValueError(f"{what} must be distinct and fit {slots} slots: {len(words)}")
        object.__setattr__(self, "_type_ids", {t: i for i, t in enumerate(self.types, _FIRST)})
        object.__setattr__(self, "_name_ids", {t: i for i, t in enumerate(self.names, _FIRST)})

    @property
    def hash(self) -> str:
        """16 hex digits of the whole table, version included."""
        text = canonical_json([self.version, self.types, self.names])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def type_id(self, type_: str) -> int:
        ids: dict[str, int] = self._type_ids  # type: ignore[attr-defined]
        if type_ not in ids:
            self.strangers[f"type:{type_}"] += 1
        return ids.get(type_, UNKNOWN)

    def name_id(self, type_: str, name: str) -> int:
        if type_ in FREE_NAMED:
            return FREE
        ids: dict[str, int] = self._name_ids  # type: ignore[attr-defined]
        if name not in ids:
            self.strangers[f"name:{name}"] += 1
        return ids.get(name, UNKNOWN)
