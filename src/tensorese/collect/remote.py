"""Collecting on other hosts: the devices of a TVM tracker, or the nodes of a Ray cluster.

Programs are planned here, results are journalled here; only the measuring is elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorese.collect.collector import Collector, Tally, TaskProgress
from tensorese.collect.planner_pool import PlannerPool
from tensorese.collect.session import OnResult, Session, stored_bests
from tensorese.measure.base import Measurer
from tensorese.measure.rpc import RpcMeasurer
from tensorese.measure.rpc_config import FleetConfig
from tensorese.records.store import Store
from tensorese.targets import usable_cores

if TYPE_CHECKING:
    from tensorese.collect.fleet.ray_cluster import RayConfig

_PER_SERVER = 4  # programs ordered for every device: one runs, the others are built or wait


class CollectRpc(RpcMeasurer):
    """Holds a candidate against its task's best so far, not its batch's, as collecting does."""

    def __init__(self, session: Session, fleet: FleetConfig, store: Store) -> None:
        self._bests: dict[str, float] = {}
        super().__init__(
            session.target, fleet, session.farm, platform=session.platform, journal=store
        )

    def _shared_bests(self) -> dict[str, float]:
        return self._bests

    @property
    def window(self) -> int:
        return max(_PER_SERVER * self.servers, _PER_SERVER * len(self.plan.builders))


@dataclass(frozen=True, kw_only=True)
class Place:
    """A measurer that is up, and what it leaves to its owner."""

    measurer: Measurer
    cores: Sequence[int]
    """Of this machine, that may be busy while programs are timed."""
    window: Callable[[], int]
    """Programs that keep it busy."""


@dataclass(frozen=True, kw_only=True)
class OverRpc:
    """Builds here, on every core, and times on the tracker's devices."""

    fleet: FleetConfig

    @property
    def name(self) -> str:
        return str(self.fleet)

    def __call__(
        self, session: Session, progress: list[TaskProgress], store: Store, on_result: OnResult
    ) -> Tally:
        with self.measuring(session, store) as place:
            return _planned(session, progress, place, on_result)

    @contextlib.contextmanager
    def measuring(self, session: Session, store: Store) -> Iterator[Place]:
        with CollectRpc(session, self.fleet, store) as farm:
            farm.know_best(stored_bests(store, session.platform.name))
            yield Place(measurer=farm, cores=farm.plan.builders, window=lambda: farm.window)


@dataclass(frozen=True, kw_only=True)
class OverRay:
    """Builds and times on the nodes; `say` gets a line for each that joins or is lost."""

    cluster: RayConfig
    say: Callable[[str], None] = lambda text: None

    @property
    def name(self) -> str:
        return f"Ray cluster {self.cluster.address}, one lane a node"

    def __call__(
        self, session: Session, progress: list[TaskProgress], store: Store, on_result: OnResult
    ) -> Tally:
        with self.measuring(session, store) as place:
            return _planned(session, progress, place, on_result)

    @contextlib.contextmanager
    def measuring(self, session: Session, store: Store) -> Iterator[Place]:
        from tensorese.collect.fleet.node import NodeSettings, run_of
        from tensorese.collect.fleet.ray_cluster import ray_fleet

        cores = usable_cores()
        settings = NodeSettings(
            target=session.target,
            platform=session.platform.name,
            run=run_of(session.out, session.platform.name),
            farm=session.farm,
            layout=session.layout,
        )
        planners = _planners(session, cores)
        with ray_fleet(
            self.cluster, settings, planners=planners, journal=store, say=self.say
        ) as fleet:
            fleet.know_best(stored_bests(store, session.platform.name))
            yield Place(measurer=fleet, cores=cores, window=lambda: fleet.ahead)


def _planners(session: Session, cores: Sequence[int]) -> int:
    return session.planners or max(1, len(cores) // 4)


def _planned(
    session: Session,
    progress: list[TaskProgress],
    place: Place,
    on_result: OnResult,
) -> Tally:
    pool = PlannerPool(
        [state.task for state in progress],
        session.target,
        seed=session.config.seed,
        processes=_planners(session, place.cores),
        cores=place.cores,
    )
    try:
        return Collector(
            progress, pool, place.measurer, session.config, on_result, place.window
        ).run()
    finally:
        pool.close()
