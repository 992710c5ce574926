"""Who measures what: a queue of small batches, the nodes' shares of it, and what comes back.

Nothing here knows Ray. A result is journalled before it is acknowledged to its node or handed to
anybody; what a lost node had not answered goes back to the front of the queue.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tensorese.collect.fleet.wire import Order, errand, measurement_of, results_of
from tensorese.records.nouns import Measurement, Platform, Status

BATCH = 8  # rows that travel together; they stay together on a node, which looks twice at the best


class NodeLost(Exception):
    """The node died, or broke the protocol; whatever it had is measured elsewhere."""


class Node(ABC):
    """A measuring host. One call at a time; `answer` is polled until it has one."""

    name: str
    window: int
    """Rows it should have at hand, so that it never waits for us."""
    beside: int = 0
    """Processes of the driver on its machine, which its times then say (`co_runners`)."""

    @abstractmethod
    def call(self, text: str) -> None:
        """Sends an errand; raises NodeLost."""

    @abstractmethod
    def answer(self) -> str | None:
        """What the call returned, None while it works; raises NodeLost."""

    @abstractmethod
    def stop(self) -> None:
        """Ends it, if it lives."""


@dataclass(eq=False)
class Seat:
    """A node at work, as the driver sees it."""

    node: Node
    out: dict[int, Order] = field(default_factory=dict)
    """Rows it has not answered, by job."""
    known: set[str] = field(default_factory=set)
    """Ids of the workloads and sketches it was sent."""
    acks: list[int] = field(default_factory=list)
    called: bool = False

    @property
    def room(self) -> int:
        return self.node.window - len(self.out)


class Handout:
    """`journal` makes measurements durable; it is called before anybody sees them."""

    def __init__(
        self,
        platform: Platform,
        journal: Callable[[list[Measurement]], None],
        *,
        retries: int = 2,
        wait: float = 1.0,
        on_lost: Callable[[Node, str], None] = lambda node, why: None,
    ) -> None:
        self.platform = platform
        self.journal = journal
        self.retries = retries
        self.wait = wait
        self.on_lost = on_lost
        self.queue: deque[list[Order]] = deque()
        self.seats: list[Seat] = []
        self.best: dict[str, float] = {}
        """Best latency of every workload, over all nodes: they are of one kind."""

    @property
    def window(self) -> int:
        return sum(seat.node.window for seat in self.seats)

    def add(self, orders: Iterable[Order]) -> None:
        self.queue.extend(_batches(orders))

    def join(self, node: Node) -> None:
        self.seats.append(Seat(node))

    def withdraw(self) -> list[Order]:
        """Takes back what no node has."""
        waiting = [order for batch in self.queue for order in batch]
        self.queue.clear()
        return waiting

    def orders(self) -> list[Order]:
        """Everything that is not answered."""
        waiting = [order for batch in self.queue for order in batch]
        return [*waiting, *(order for seat in self.seats for order in seat.out.values())]

    def step(self) -> bool:
        """Takes what the nodes answered, hands out what there is; whether anything moved."""
        moved = [self._guarded(seat, self._take_answer) for seat in list(self.seats)]
        shares = self._shares()
        for seat in list(self.seats):
            batches = shares.get(seat, [])
            if not seat.called and (batches or seat.out):
                moved.append(self._guarded(seat, partial(self._call, batches=batches)))
        return any(moved)

    def _guarded(self, seat: Seat, visit: Callable[[Seat], bool]) -> bool:
        try:
            return visit(seat)
        except NodeLost as lost:
            self._lose(seat, str(lost))
            return True

    # -- handing out -------------------------------------------------------------------------

    def _shares(self) -> dict[Seat, list[list[Order]]]:
        """Batches go to whoever has the most room, so that the last ones are shared too."""
        free = [seat for seat in self.seats if not seat.called]
        shares: dict[Seat, list[list[Order]]] = {}
        while self.queue and (hungry := [seat for seat in free if seat.room > 0]):
            seat = max(hungry, key=lambda seat: seat.room / seat.node.window)
            batch = self.queue.popleft()
            seat.out.update({order.job: order for order in batch})
            shares.setdefault(seat, []).append(batch)
        return shares

    def _call(self, seat: Seat, batches: Sequence[list[Order]]) -> bool:
        acks, seat.acks = seat.acks, []
        text = errand(batches, known=seat.known, acks=acks, best=self.best, wait=self.wait)
        seat.node.call(text)
        seat.called = True
        return bool(batches)

    # -- taking back -------------------------------------------------------------------------

    def _take_answer(self, seat: Seat) -> bool:
        text = seat.node.answer() if seat.called else None
        if text is None:
            return False
        seat.called = False
        done: list[tuple[Order, Measurement]] = []
        again: list[Order] = []
        try:
            for order, measurement in self._read(seat, text):
                faulty = measurement.status is Status.INFRA_ERROR
                retried = faulty and order.attempts < self.retries
                order.attempts += faulty
                again.append(order) if retried else done.append((order, measurement))
        finally:  # what was read counts, also when the node then turns out to talk nonsense
            self._deliver(done)
            self.queue.extend(_batches(again))
        return bool(done or again)

    def _read(self, seat: Seat, text: str) -> Iterator[tuple[Order, Measurement]]:
        try:
            for job, row in results_of(text):
                order = seat.out.get(job)
                if order is not None:  # else received before; its acknowledgement was still to come
                    measurement = measurement_of(row, order)
                    del seat.out[job]
                    yield order, self._signed(measurement, seat.node)
                seat.acks.append(job)
        except (KeyError, ValueError, TypeError) as error:
            raise NodeLost(f"it must answer what it was asked, but said {error}") from None

    def _signed(self, measurement: Measurement, node: Node) -> Measurement:
        timing = dict(measurement.timing)
        if timing:
            timing["co_runners"] = timing.get("co_runners", 0) + node.beside
        return replace(measurement, host=node.name, platform=self.platform, timing=timing)

    def _deliver(self, done: Sequence[tuple[Order, Measurement]]) -> None:
        if done:
            self.journal([measurement for _, measurement in done])
        for order, measurement in done:
            if measurement.status is Status.OK:
                key = order.program.workload.id
                self.best[key] = min(measurement.latency, self.best.get(key, math.inf))
            order.ticket.put((order.index, measurement))

    def _lose(self, seat: Seat, why: str) -> None:
        self.seats.remove(seat)
        seat.node.stop()
        retried: list[Order] = []
        failed: list[tuple[Order, Measurement]] = []
        for order in seat.out.values():
            order.attempts += 1
            if order.attempts <= self.retries:
                retried.append(order)
            else:
                failed.append((order, self._given_up(order, seat.node.name, why)))
        self.queue.extendleft(reversed(_batches(retried)))
        self._deliver(failed)
        self.on_lost(seat.node, why)

    def _given_up(self, order: Order, name: str, why: str) -> Measurement:
        return Measurement(
            program=order.program,
            platform=self.platform,
            status=Status.INFRA_ERROR,
            error=f"{order.attempts} nodes were lost with it, the last one {name}: {why}",
            origin=order.candidate.origin,
            split=order.candidate.split,
            host=name,
        )


def _batches(orders: Iterable[Order]) -> list[list[Order]]:
    rows = list(orders)
    return [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]
