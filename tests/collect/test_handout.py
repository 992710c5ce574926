"""Handing out without Ray: batches, returns, lost nodes; the nodes are made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tensorese.collect.fleet.handout import Handout, Node, NodeLost
from tensorese.collect.fleet.wire import KnownNouns, Order, report
from tensorese.measure.base import Candidate, Ticket
from tensorese.records.nouns import Measurement, Platform, Program, Sketch, Status, Workload

pytestmark = pytest.mark.null

PLATFORM = Platform(name="p", target='{"kind":"llvm"}')
WORKLOAD = Workload(operator="dense", args=())
SKETCH = Sketch(dialect="metaschedule", body="[]", slots=((0, 1),))


def orders(n: int, first: int = 0) -> tuple[list[Order], Ticket]:
    ticket = Ticket(n)
    programs = [Program(workload=WORKLOAD, sketch=SKETCH, decisions=(first + i,)) for i in range(n)]
    made = [Candidate(program=program, origin="random", split="test") for program in programs]
    return [Order(first + i, i, candidate, ticket) for i, candidate in enumerate(made)], ticket


class FakeNode(Node):
    """Measures `speed` rows a call, told by `status`; dies when `doomed` says so."""

    def __init__(self, name: str, window: int = 16, speed: int = 100) -> None:
        self.name, self.window, self.speed = name, window, speed
        self.nouns = KnownNouns()
        self.messages: list[dict[str, Any]] = []
        self.todo: list[tuple[int, Candidate]] = []
        self.done: dict[int, Measurement] = {}
        self.stopped = False
        self.doomed = False
        self.status: Callable[[int], Status] = lambda job: Status.OK
        self.reply: str | None = None

    def call(self, text: str) -> None:
        assert not self.stopped, "a stopped node is never called"
        message = json.loads(text)
        self.messages.append(message)
        self.nouns.learn(message)
        for job in message["ack"]:
            del self.done[job]  # a job is acknowledged once
        rows = [row for batch in message["batches"] for row in batch]
        self.todo += [(row["job"], self.nouns.candidate(row)) for row in rows]

    def answer(self) -> str | None:
        if self.doomed:
            raise NodeLost("killed")
        for job, candidate in self.todo[: self.speed]:
            status = self.status(job)
            self.done[job] = Measurement(
                program=candidate.program,
                platform=PLATFORM,
                status=status,
                run_secs=(1e-3 * (1 + job),) if status is Status.OK else (),
                timing={"co_runners": 1},
                origin=candidate.origin,
                split=candidate.split,
            )
        del self.todo[: self.speed]
        return self.reply or report(self.done.items())

    def stop(self) -> None:
        self.stopped = True


class Ledger:
    """The journal; a result must be in it before its ticket has it."""

    def __init__(self) -> None:
        self.rows: list[Measurement] = []

    def __call__(self, measurements: list[Measurement]) -> None:
        self.rows.extend(measurements)


def run(handout: Handout, ticket: Ticket, most: int = 200) -> dict[int, Measurement]:
    found: dict[int, Measurement] = {}
    for _ in range(most):
        handout.step()
        found.update(ticket.poll())
        if not ticket.remaining:
            return found
    raise AssertionError(f"{ticket.remaining} rows were never answered")


def test_every_row_is_measured_once_and_journalled_before_it_is_handed_out() -> None:
    ledger = Ledger()
    handout = Handout(PLATFORM, ledger)
    nodes = [FakeNode("a", speed=3), FakeNode("b", speed=5)]
    for node in nodes:
        handout.join(node)
    rows, ticket = orders(50)
    handout.add(rows)
    found = run(handout, ticket)
    assert [m.program.decisions[0] for _, m in sorted(found.items())] == list(range(50))
    assert sorted(m.id for m in ledger.rows) == sorted(m.id for m in found.values())
    assert {m.host for m in ledger.rows} == {"a", "b"}
    assert all(m.origin == "random" and m.split == "test" for m in ledger.rows)
    assert not handout.orders()


def test_nouns_travel_once_and_windows_are_kept() -> None:
    handout = Handout(PLATFORM, Ledger())
    node = FakeNode("a", window=16, speed=1)
    handout.join(node)
    rows, ticket = orders(40)
    handout.add(rows)
    handout.step()
    assert len(node.todo) == 16
    run(handout, ticket)
    assert sum(len(m["workloads"]) + len(m["sketches"]) for m in node.messages) == 2
    assert any(m["best"] == {WORKLOAD.id: 1e-3} for m in node.messages[1:])


def test_the_last_batches_are_shared_between_nodes() -> None:
    handout = Handout(PLATFORM, Ledger())
    nodes = [FakeNode("a", window=64), FakeNode("b", window=64)]
    for node in nodes:
        handout.join(node)
    handout.add(orders(16)[0])
    handout.step()
    assert [len(node.todo) for node in nodes] == [8, 8]


def test_a_lost_nodes_rows_go_back_first_and_nothing_is_measured_twice() -> None:
    ledger = Ledger()
    lost: list[tuple[str, str]] = []
    handout = Handout(PLATFORM, ledger, on_lost=lambda node, why: lost.append((node.name, why)))
    first, second = FakeNode("a", speed=4), FakeNode("b", speed=4)
    handout.join(first)
    rows, ticket = orders(40)
    handout.add(rows)
    handout.step()
    handout.step()  # four answers of the first node are in
    first.doomed = True
    handout.join(second)
    found = run(handout, ticket)
    assert lost == [("a", "killed")] and first.stopped
    assert len(ledger.rows) == len({m.program.id for m in ledger.rows}) == 40
    assert sorted(found) == list(range(40))
    assert {found[i].host for i in range(4)} == {"a"}
    assert {found[i].host for i in range(4, 40)} == {"b"}
    taken = [row["job"] for batch in second.messages[0]["batches"] for row in batch]
    assert taken == list(range(4, 20))


def test_without_a_node_rows_wait_for_the_next_one() -> None:
    handout = Handout(PLATFORM, Ledger())
    rows, ticket = orders(3)
    handout.add(rows)
    assert not handout.step()
    handout.join(FakeNode("late"))
    assert len(run(handout, ticket)) == 3


def test_a_row_that_takes_nodes_along_is_given_up_and_is_no_label() -> None:
    ledger = Ledger()
    handout = Handout(PLATFORM, ledger, retries=2)
    rows, ticket = orders(2)
    handout.add(rows)
    for number in range(3):
        node = FakeNode(f"n{number}")
        handout.join(node)
        handout.step()
        node.doomed = True
        handout.step()
    found = dict(ticket.poll())
    assert {m.status for m in found.values()} == {Status.INFRA_ERROR}
    assert "3 nodes were lost with it, the last one n2: killed" in found[0].error
    assert len(ledger.rows) == 2


def test_faults_of_a_node_are_tried_again_and_then_told() -> None:
    handout = Handout(PLATFORM, Ledger(), retries=2)
    bad, good = FakeNode("bad"), FakeNode("good")
    bad.status = lambda job: Status.INFRA_ERROR
    handout.join(bad)
    rows, ticket = orders(1)
    handout.add(rows)
    handout.step()
    handout.step()
    assert ticket.remaining == 1 and rows[0].attempts == 1
    handout.join(good)
    bad.status = lambda job: Status.OK
    assert run(handout, ticket)[0].status is Status.OK
    handout.seats = handout.seats[:1]
    bad.status = lambda job: Status.INFRA_ERROR
    rows, ticket = orders(1, first=100)
    handout.add(rows)
    assert run(handout, ticket)[0].status is Status.INFRA_ERROR


def test_a_node_that_answers_nonsense_is_lost_but_what_it_said_before_counts() -> None:
    ledger = Ledger()
    handout = Handout(PLATFORM, ledger)
    node = FakeNode("a", speed=2)
    handout.join(node)
    rows, ticket = orders(4)
    handout.add(rows)
    handout.step()
    node.answer()
    good = json.loads(report(node.done.items()))["results"]
    node.reply = json.dumps({"results": [good[0], [1, {**good[1][1], "program_id": "x"}]]})
    handout.step()
    assert node.stopped and len(ledger.rows) == 1
    handout.join(FakeNode("b"))
    assert len(run(handout, ticket)) == 4
    assert len({m.program.id for m in ledger.rows}) == len(ledger.rows) == 4


def test_a_repeated_answer_is_acknowledged_and_not_counted_again() -> None:
    ledger = Ledger()
    handout = Handout(PLATFORM, ledger)
    node = FakeNode("a", speed=1)
    handout.join(node)
    rows, ticket = orders(3)
    handout.add(rows)
    handout.step()
    handout.step()
    assert node.messages[-1]["ack"] == [0]
    node.done[0] = ledger.rows[0]  # the acknowledgement never reached it
    run(handout, ticket)
    assert len(ledger.rows) == 3


def test_processes_of_the_driver_beside_a_node_are_in_its_times() -> None:
    handout = Handout(PLATFORM, Ledger())
    node = FakeNode("a")
    node.beside = 2
    handout.join(node)
    rows, ticket = orders(1)
    handout.add(rows)
    assert run(handout, ticket)[0].timing["co_runners"] == 3


def test_a_full_disk_ends_the_run_instead_of_losing_results() -> None:
    def full(measurements: list[Measurement]) -> None:
        raise OSError("no space left")

    handout = Handout(PLATFORM, full)
    handout.join(FakeNode("a"))
    rows, ticket = orders(1)
    handout.add(rows)
    handout.step()
    with pytest.raises(OSError, match="no space"):
        handout.step()
    assert ticket.remaining == 1 and not ticket.poll()
