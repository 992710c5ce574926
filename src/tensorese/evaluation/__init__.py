"""How good a ranking is, and on what it may be judged."""

from tensorese.evaluation.metrics import TaskResult, bootstrap, judge, summary
from tensorese.evaluation.splits import LeakError, by_operator, by_workload, check_disjoint

__all__ = [
    "LeakError",
    "TaskResult",
    "bootstrap",
    "by_operator",
    "by_workload",
    "check_disjoint",
    "judge",
    "summary",
]
