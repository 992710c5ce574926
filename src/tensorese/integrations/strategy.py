"""Our search behind MetaSchedule's search strategy, free of MetaSchedule's base classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorese.identity import workload_of
from tensorese.integrations.programs import (
    measurement_of,
    platform_named,
    program_of,
    target_of,
)
from tensorese.search.contracts import Proposer, TaskState
from tensorese.space.materialise import materialise
from tensorese.space.space import task_space
from tensorese.tvm_env import import_tvm

KNOWN = 1024  # records of the database that a resumed task starts from
_ATTEMPTS = 4  # batches of which TVM may refuse every row before a task is called exhausted


class TaskSearch:
    """One task: from the first `pre_tuning` to the last result."""

    def __init__(self, proposer: Proposer, platform: str) -> None:
        self.proposer = proposer
        self.platform = platform
        self.module: Any = None
        self.target: Any = None
        self.threads = 1
        self.state: TaskState | None = None
        self.left = 0
        self.batch = 1

    def set_context(self, context: Any) -> None:
        # Not the context itself: it owns the strategy, and neither would ever be freed.
        self.module, self.target = context.mod, context.target
        self.threads = int(context.num_threads)

    def start(self, trials: int, batch: int, database: Any) -> None:
        space = task_space(self.module, target_of(self.target))
        platform = platform_named(self.platform, self.target)
        self.state = TaskState(workload_of(self.module), space, platform)
        self.left, self.batch = trials, batch
        if database is not None and database.has_workload(self.module):
            records = database.get_top_k(database.commit_workload(self.module), KNOWN)
            self._learn([record.trace for record in records], records)

    def next(self) -> list[Any] | None:
        """MetaSchedule's candidates; None when the trials or the space are used up."""
        if self.state is None:
            return None
        for _ in range(_ATTEMPTS):
            (proposals,) = self.proposer.propose([self.state], min(self.batch, self.left))
            self.state.batch += 1
            if not proposals:
                return None
            self.state.promise(proposals)
            rows = [(p.sketch, p.row) for p in proposals]
            ready = materialise(self.state.space, rows, self.state.workload, threads=self.threads)
            schedules = [made.schedule for made in ready if not made.error]
            if schedules:
                self.left -= len(schedules)
                return [_candidate(schedule) for schedule in schedules]
        return None

    def tell(self, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        self._learn([candidate.sch.trace for candidate in candidates], results)

    def _learn(self, traces: Sequence[Any], results: Sequence[Any]) -> None:
        state = self.state
        assert state is not None, "results come after pre_tuning"
        pairs = zip(traces, results, strict=True)
        measurements = [
            measurement_of(program_of(trace, state.workload), state.platform, result)
            for trace, result in pairs
        ]
        for measurement in measurements:
            state.add(measurement)
        self.proposer.update(measurements)


def _candidate(schedule: Any) -> Any:
    ms = import_tvm().s_tir.meta_schedule
    args = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    return ms.MeasureCandidate(schedule, args)
