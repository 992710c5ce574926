"""The fleet as a measurer: nodes that come and go, and none at all. No Ray, no TVM."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from tensorese.collect.fleet.handout import Node, NodeLost
from tensorese.collect.fleet.measurer import Cluster, FleetMeasurer
from tensorese.errors import MeasureError, StoreError
from tensorese.measure.base import Candidate, Journal
from tensorese.records.nouns import Measurement
from test_handout import PLATFORM, FakeNode, orders

pytestmark = pytest.mark.null


class FakeCluster(Cluster):
    def __init__(self, *nodes: Node) -> None:
        self.coming = list(nodes)
        self.gone: list[str] = []
        self.closed = False

    def joined(self) -> list[Node]:
        coming, self.coming = self.coming, []
        return coming

    def lost(self, node: Node, why: str) -> None:
        self.gone.append(f"{node.name}: {why}")

    def wait(self, secs: float) -> None:
        time.sleep(0.001)

    def absence(self) -> str:
        return "the nodes are on holiday"

    def close(self) -> None:
        self.closed = True


class MortalNode(FakeNode):
    """Dies at its third answer."""

    answers = 0

    def answer(self) -> str | None:
        self.answers += 1
        if self.answers == 3:
            raise NodeLost("killed")
        return super().answer()


def fleet(cluster: Cluster, journal: Journal | None = None) -> FleetMeasurer:
    return FleetMeasurer(cluster, PLATFORM, journal=journal, patience=0.2)


def candidates(n: int) -> Sequence[Candidate]:
    return [order.candidate for order in orders(n)[0]]


def test_the_survivor_finishes_and_results_keep_their_order() -> None:
    journal: list[Measurement] = []
    cluster = FakeCluster(MortalNode("a", speed=2), FakeNode("b", speed=2))
    with fleet(cluster, journal) as measurer:
        found = measurer.measure(candidates(60))
    assert [m.program.decisions[0] for m in found] == list(range(60))
    assert len({m.program.id for m in journal}) == len(journal) == 60
    assert cluster.gone == ["a: killed"] and cluster.closed
    assert {m.host for m in found} == {"a", "b"}


def test_a_node_that_joins_later_is_used() -> None:
    cluster = FakeCluster(FakeNode("a", speed=1))
    with fleet(cluster) as measurer:
        ticket = measurer.submit(candidates(300))
        cluster.coming = [FakeNode("late", speed=50)]
        hosts = {m.host for _, m in ticket}
        assert measurer.ahead == 64
    assert hosts == {"a", "late"}


def test_nobody_there_is_one_line_that_says_why() -> None:
    with fleet(FakeCluster()) as measurer:
        ticket = measurer.submit(candidates(1))
        with pytest.raises(MeasureError, match=r"none for 0\.2 s: the nodes are on holiday"):
            list(ticket)
        with pytest.raises(MeasureError, match="on holiday"):
            list(measurer.submit(candidates(1)))


def test_without_rows_nobody_is_missed() -> None:
    with fleet(FakeCluster()) as measurer:
        time.sleep(0.4)
        measurer.cluster.coming = [FakeNode("a")]  # type: ignore[attr-defined]
        assert len(measurer.measure(candidates(2))) == 2


def test_a_store_that_cannot_be_written_ends_the_run() -> None:
    class Full:
        def append(self, measurement: Measurement) -> None:
            raise StoreError("no space left")

    with (
        fleet(FakeCluster(FakeNode("a")), Full()) as measurer,
        pytest.raises(StoreError, match="no space"),
    ):
        measurer.measure(candidates(2))


def test_closing_early_fails_what_is_left() -> None:
    measurer = fleet(FakeCluster())
    ticket = measurer.submit(candidates(1))
    measurer.close()
    measurer.close()
    with pytest.raises(MeasureError, match="closed before"):
        list(ticket)
    with pytest.raises(MeasureError, match="closed fleet"):
        measurer.submit(candidates(1))
