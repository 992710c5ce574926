"""A fleet as a measurer: one thread that hands out, takes back, and welcomes nodes."""

from __future__ import annotations

import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence

from tensorese.collect.fleet.handout import Handout, Node
from tensorese.collect.fleet.wire import Order
from tensorese.errors import MeasureError
from tensorese.measure.base import Cancelled, Candidate, Journal, Measurer, Ticket
from tensorese.records.nouns import Measurement, Platform

_WAIT_SECS = 0.1


class Cluster(ABC):
    """Where nodes come from. Only the fleet's thread calls it."""

    @abstractmethod
    def joined(self) -> list[Node]:
        """Nodes that are ready to measure and have not been named before."""

    @abstractmethod
    def lost(self, node: Node, why: str) -> None:
        """The node did not answer; it may be named again when it is back."""

    @abstractmethod
    def wait(self, secs: float) -> None:
        """Returns when a node has an answer, at the latest after so many seconds."""

    @abstractmethod
    def absence(self) -> str:
        """Why there is no node, and what to do about it: the end of an error message."""

    @abstractmethod
    def close(self) -> None: ...


class FleetMeasurer(Measurer):
    """Measures on the nodes of a cluster, as many as it has at the moment."""

    def __init__(
        self,
        cluster: Cluster,
        platform: Platform,
        *,
        journal: Journal | None = None,
        patience: float = 60.0,
        retries: int = 2,
    ) -> None:
        """`patience`: seconds that rows wait for a node when there is none, before we give up."""
        self.cluster = cluster
        self.patience = patience
        self.journal = journal
        self.handout = Handout(platform, self._write, retries=retries, on_lost=cluster.lost)
        self._inbox: deque[list[Order]] = deque()
        self._open: list[Ticket] = []
        self._guard = threading.Lock()  # of the line above
        self._jobs = itertools.count()
        self._closing = self._cancelled = False
        self._settled = threading.Event()
        self._failure: BaseException | None = None
        self._seen_at = time.monotonic()  # when there was last a node, or nothing to do
        self._thread = threading.Thread(target=self._direct, name="tensorese-fleet", daemon=True)
        self._thread.start()

    @property
    def ahead(self) -> int:
        """Rows that keep every node busy, and as many that wait for the next to ask or to join."""
        return 2 * self.handout.window

    @property
    def builds_at_once(self) -> int:
        """Twice as many in flight, which a search sees to, are a batch for every node."""
        return max(2, self.handout.window // 2)

    def submit(self, candidates: Sequence[Candidate]) -> Ticket:
        if self._closing:
            raise MeasureError("a closed fleet cannot measure; create another")
        ticket = Ticket(len(candidates))
        orders = [
            Order(next(self._jobs), index, candidate, ticket)
            for index, candidate in enumerate(candidates)
        ]
        with self._guard:
            self._open.append(ticket)
        self._inbox.append(orders)
        if self._failure is not None:
            ticket.put(self._failure)
        return ticket

    def know_best(self, latencies: Mapping[str, float]) -> None:
        self.handout.best.update(latencies)

    def cancel(self) -> None:
        """Rows that a node has are under way; those that wait for one are dropped."""
        self._cancelled = True

    def settle(self) -> None:
        self._settled.wait()

    def _write(self, measurements: Sequence[Measurement]) -> None:
        if self.journal is not None:
            for measurement in measurements:
                self.journal.append(measurement)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._thread.join()

    def _direct(self) -> None:
        try:
            while not self._closing:
                if not self._round():
                    self.cluster.wait(_WAIT_SECS)
            self._fail(MeasureError("closed before everything was measured"))
        except BaseException as error:
            self._fail(error)
        finally:
            self._settled.set()
            self.cluster.close()

    def _round(self) -> bool:
        while self._inbox:
            self.handout.add(self._inbox.popleft())
        if self._cancelled:
            self._drop_waiting()
        for node in self.cluster.joined():
            self.handout.join(node)
        moved = self.handout.step()
        with self._guard:
            self._open = [ticket for ticket in self._open if ticket.remaining]
        if self.handout.seats or not self.handout.queue:
            self._seen_at = time.monotonic()
        elif time.monotonic() - self._seen_at > self.patience:
            raise MeasureError(
                f"a fleet must have a node to measure on, but had none for {self.patience:g} s: "
                f"{self.cluster.absence()}"
            )
        return moved

    def _drop_waiting(self) -> None:
        for ticket in {order.ticket for order in self.handout.withdraw()}:
            ticket.put(Cancelled("cancelled before it was measured"))
        if not self.handout.orders():
            self._settled.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        with self._guard:
            for ticket in self._open:
                ticket.put(error)
