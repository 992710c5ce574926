"""The collecting loop without TVM: planners and a measurer made by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tensorese.collect.collector import CollectConfig, Collector, TaskProgress
from tensorese.collect.planner_pool import PlannedPrograms, Planners, Request
from tensorese.collect.tasklist import ListedTask
from tensorese.errors import MeasureError
from tensorese.measure.base import Candidate, Measurer, Ticket
from tensorese.records.nouns import Measurement, Platform, Program, Sketch, Status, Workload

pytestmark = pytest.mark.null

SKETCH = Sketch(dialect="metaschedule", body="[]", slots=((0, 1),))


def state(name: str, operator: str = "dense", split: str = "") -> TaskProgress:
    workload = Workload(operator=name, args=())
    return TaskProgress(
        task=ListedTask(workload=workload, kind="llvm", operator=operator, split=split)
    )


class CountingPlanners(Planners):
    """Task `i` has `sizes[i]` programs: the numbers from 0; a mutation is a negative number."""

    def __init__(self, tasks: Sequence[TaskProgress], sizes: Sequence[int]) -> None:
        self.tasks = tasks
        self.left = [iter(range(size)) for size in sizes]
        self.requests: list[Request] = []
        self.answers: list[PlannedPrograms] = []

    def ask(self, request: Request) -> None:
        self.requests.append(request)
        rows: list[int] = []
        exhausted = False
        if request.op == "random":
            rows = [row for _, row in zip(range(request.n), self.left[request.task], strict=False)]
            exhausted = len(rows) < request.n
        elif request.op == "mutation":
            rows = [-len(self.requests) * 100 - i for i in range(request.n)]
        else:
            rows = [row[0] for _, row in request.rows]
        workload = self.tasks[request.task].task.workload
        programs = [Program(workload=workload, sketch=SKETCH, decisions=(row,)) for row in rows]
        plan = PlannedPrograms(request=request, programs=tuple(programs), exhausted=exhausted)
        broken = workload.operator == "broken"
        self.answers.append(PlannedPrograms(request=request, error="no space") if broken else plan)

    def poll(self) -> list[PlannedPrograms]:
        answers, self.answers = self.answers, []
        return answers

    def cancel(self) -> None: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


class InstantMeasurer(Measurer):
    """The latency is 1 + the decision, in microseconds; 13 does not build."""

    def submit(self, candidates: Sequence[Candidate]) -> Ticket:
        ticket = Ticket(len(candidates))
        for index, candidate in enumerate(candidates):
            value = candidate.program.decisions[0]
            ok = value != 13
            measurement = Measurement(
                program=candidate.program,
                platform=Platform(name="p"),
                status=Status.OK if ok else Status.BUILD_ERROR,
                run_secs=(1e-6 * (1000 + value),) if ok else (),
                origin=candidate.origin,
                split=candidate.split,
            )
            ticket.put((index, measurement))
        return ticket

    def cancel(self) -> None: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


def run(
    states: list[TaskProgress], sizes: Sequence[int], **options: object
) -> tuple[Collector, CountingPlanners]:
    planners = CountingPlanners(states, sizes)
    config = CollectConfig(minutes=0.2, **options)  # type: ignore[arg-type]
    collector = Collector(states, planners, InstantMeasurer(), config)
    collector.run()
    return collector, planners


def test_it_ends_when_nothing_is_left_and_counts_failures() -> None:
    collector, _ = run([state("a"), state("b")], [20, 5], random_share=1.0)
    assert collector.tally.measured == 25
    assert collector.tally.by_status == {"ok": 24, "build_error": 1}
    assert collector.tally.by_class == {"dense": 25}


def test_programs_are_spread_over_tasks_and_light_ones_get_fewer() -> None:
    states = [state("a"), state("b"), state("p", "pool")]
    _, planners = run(states, [1000, 1000, 1000], per_task=40, random_share=1.0)
    first = Counter(request.task for request in planners.requests[:11])
    assert first == {0: 5, 1: 5, 2: 1}


def test_mutations_stay_within_their_share_and_start_from_the_best() -> None:
    collector, planners = run([state("a")], [10**6], per_task=400, random_share=0.75)
    origins = collector.tally.by_origin
    assert 0.15 < origins["mutation"] / sum(origins.values()) <= 0.25
    parents = next(r for r in planners.requests if r.op == "mutation").rows
    assert [row[0] for _, row in parents] == [0, 1, 2, 3]


def test_test_tasks_are_random_only_and_keep_their_mark() -> None:
    states = [state("a", split="test")]
    collector, planners = run(states, [10**6], per_task=200)
    assert {request.op for request in planners.requests} == {"random"}
    assert collector.tally.by_origin == {"random": 200}


def test_what_the_store_has_counts_and_is_told_to_the_planner() -> None:
    known = state("a")
    known.known = ["x"] * 30
    _, planners = run([known], [10**6], per_task=40)
    assert sum(request.n for request in planners.requests) == 10
    assert planners.requests[0].known == ["x"] * 30
    assert not any(request.known for request in planners.requests[1:])


def test_a_broken_task_is_named_and_the_others_go_on() -> None:
    collector, _ = run([state("broken"), state("b")], [10, 10], random_share=1.0)
    assert collector.tally.measured == 10
    assert list(collector.tally.errors.values()) == ["no space"]


def test_programs_of_others_come_first_with_their_origin() -> None:
    one = state("a")
    one.named = [("s", (7,), "model:tlp:1"), ("s", (8,), "model:tlp:1"), ("s", (9,), "random")]
    collector, planners = run([one], [10**6], per_task=11, random_share=1.0)
    assert [r.op for r in planners.requests[:2]] == ["named", "named"]
    assert collector.tally.by_origin["model:tlp:1"] == 2
    collector, _ = run([state("b")], [10**6], only_named=True)
    assert collector.tally.measured == 0


def test_programs_of_others_are_spread_over_their_tasks() -> None:
    states = [state("a"), state("b")]
    for one in states:
        one.named = [("s", (k,), "random") for k in range(32)]
    _, planners = run(states, [10**6, 10**6], only_named=True)
    assert [request.task for request in planners.requests[:4]] == [0, 1, 0, 1]


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(MeasureError, match="--minutes must be positive"):
        CollectConfig(minutes=0)
    with pytest.raises(MeasureError, match=r"0\.7 <= random share"):
        CollectConfig(random_share=0.5)
