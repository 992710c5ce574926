"""The way of lowered programs to the models that read them: caches beside stores, filled first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tensorese.errors import TargetError
from tensorese.features.base import FeatureSet
from tensorese.features.lowered import LoweredCache
from tensorese.features.programs import DataError, ProgramSet
from tensorese.records.nouns import Program
from tensorese.records.store import Store
from tensorese.targets import Target


def _silent(text: str) -> None: ...


def _uncounted(done: int, total: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Who is told of lowering, which takes minutes where no cache knows the programs."""

    say: Callable[[str], None] = _silent
    progress: Callable[[int, int], None] = _uncounted
    """How many of how many are lowered."""


NOBODY = Listener()


def ready_for(
    needs: Sequence[FeatureSet],
    programs: ProgramSet,
    stores: Sequence[Store],
    listener: Listener = NOBODY,
    *,
    failed: bool = False,
) -> ProgramSet:
    """The same programs, lowered where one of these feature sets asks for it.

    Rows come from the caches beside the stores; what these lack is lowered by build workers on all
    cores. Programs that never ran are lowered only where `failed` asks for them.
    """
    if programs.lowered is not None or not any(one.lowers for one in needs):
        return programs
    wanted = np.asarray(np.isfinite(programs.latency).any(1) | failed)
    homes = _homes(programs, stores)
    target = target_for(programs, stores)
    known: LoweredCache | None = None
    for store in {id(home): home for home in homes.values()}.values():
        mine = np.array([homes[name] is store for name in programs.tasks])[programs.task]
        cache = _filled(store, programs, wanted & mine, target, listener)
        if known is not None:
            cache.absorb(known)
        known = cache
    assert known is not None  # some program has a home
    if not any(programs.ids[k] in known for k in np.flatnonzero(wanted)):
        raise _none_of(programs)
    return replace(programs, lowered=known.of_programs(programs))


def _none_of(programs: ProgramSet) -> DataError:
    return DataError(
        "a model of lowered programs needs programs that TVM can replay, but none of these "
        f"{len(programs):,} is one: imported logs cannot be lowered; give records that were "
        "collected or tuned here"
    )


def _filled(
    store: Store,
    programs: ProgramSet,
    wanted: npt.NDArray[np.bool_],
    target: Target,
    listener: Listener,
) -> LoweredCache:
    cache = LoweredCache(store.path, target)
    missing = list(_missing(programs, wanted, cache))
    if not missing:
        return cache
    from tensorese.measure.lowering import lower_programs

    name = target.mcpu or target.arch or target.kind
    every = ", which stands for every CPU" if target.is_cpu else ""
    listener.say(
        f"lowering {len(missing):,} of {wanted.sum():,} programs of {store.path} for {name}{every}"
        f"; kept in {cache.folder}"
    )
    return lower_programs(cache, missing, target, progress=listener.progress)


def _missing(
    programs: ProgramSet, wanted: npt.NDArray[np.bool_], cache: LoweredCache
) -> Iterator[Program]:
    unknown = np.array([name not in cache for name in programs.ids])
    return replayable(programs, wanted & unknown)


def replayable(programs: ProgramSet, wanted: npt.NDArray[np.bool_]) -> Iterator[Program]:
    """Those that TVM can schedule."""
    for pair, members, decisions in zip(
        programs.pairs, programs.members, programs.decisions, strict=True
    ):
        workload, sketch = programs.workloads[pair.workload], pair.sketch
        if workload.module and sketch.dialect == "metaschedule":
            for row in decisions[wanted[members]].tolist():
                yield Program(workload=workload, sketch=sketch, decisions=tuple(row))


def target_for(programs: ProgramSet, stores: Sequence[Store]) -> Target:
    """The one that they are lowered for: whose caches hold most."""
    return max(
        _targets(programs, stores).values(),
        key=lambda target: sum(LoweredCache.size_of(store.path, target) for store in stores),
    )


def _targets(programs: ProgramSet, stores: Sequence[Store]) -> dict[str, Target]:
    """By platform, those of the programs first: all CPUs of the stores, or one GPU.

    One stands for all CPUs: what TVM says of a program's loops and buffers is the same.
    """
    known: dict[str, Target] = {}
    for store in stores:
        for name, text in store.targets().items():
            with suppress(TargetError, ValueError):  # Ansor's are no objects
                known[name] = Target.from_json(text)
    if not known.keys() >= set(programs.platforms):
        raise _none_of(programs)
    wanted = {name: known[name] for name in programs.platforms}
    if not all(target.is_cpu for target in wanted.values()):
        if len(wanted) > 1:
            raise DataError(
                "programs are lowered for CPUs or for one GPU, but the records are of "
                f"{', '.join(wanted)}; name one of them with --platform"
            )
        return wanted
    return wanted | {name: target for name, target in known.items() if target.is_cpu}


def _homes(programs: ProgramSet, stores: Sequence[Store]) -> dict[str, Store]:
    """Beside which store a workload's programs are kept: the first that knows it."""
    homes: dict[str, Store] = {}
    for store in stores:
        for name in store.workloads():
            homes.setdefault(name, store)
    return {name: homes[name] for name in programs.tasks}
