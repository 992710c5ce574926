"""Search on integer rows: proposers, rankers, the scheduler of tasks and the tuning loop."""
