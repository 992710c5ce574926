"""Legal programs drawn at random, of tasks and targets: what pre-training reads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import numpy as np

from tensorese.arrays import Ints
from tensorese.records.nouns import Sketch, Workload
from tensorese.space.replay import SCHEDULE_ERRORS
from tensorese.space.space import task_space
from tensorese.space.tiles import SpaceError
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

log = logging.getLogger(__name__)


def random_programs(
    workloads: Iterable[Workload], target: str, n: int, seed: int
) -> Iterator[tuple[Workload, Sketch, Ints]]:
    """`n` rows of every sketch that the integers decide; fewer where the space has no more.

    A workload without a module, or one that TVM does not take, is passed over.
    """
    parsed = Target.parse(target)
    for workload in workloads:
        if not workload.module:
            continue
        try:
            module = import_tvm(parsed.kind).ir.load_json(workload.module)
            space = task_space(module, parsed, seed=seed)
        except (SpaceError, *SCHEDULE_ERRORS) as error:
            log.warning("no random programs of %s: %s", workload.id, str(error)[:160])
            continue
        rng = np.random.default_rng([seed, int(workload.id, 16) % (1 << 32)])
        for sketch in space.sketches:
            rows = sketch.sample(n, rng) if sketch.covered else np.zeros((0, 0), np.int64)
            if len(rows):
                yield workload, sketch.sketch, np.unique(rows, axis=0)
