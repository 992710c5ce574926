"""The fleet of a tracker as a tuning run needs it: one best a task, finalists timed longer."""

from __future__ import annotations

from tensorese.measure.base import FINALIST, Journal
from tensorese.measure.config import FarmConfig
from tensorese.measure.director import Director
from tensorese.measure.jobs import Job
from tensorese.measure.rpc import RpcDirector, RpcMeasurer
from tensorese.measure.rpc_config import FleetConfig
from tensorese.measure.tuning_farm import TUNING, as_finalist
from tensorese.measure.wire import Message
from tensorese.records.nouns import Platform
from tensorese.targets import Target


class TuningRpc(RpcMeasurer):
    """Who tunes may think while devices time: no core is shared with them. Finalists are built
    once a turn, and their turns may be on different devices of the key, which are alike."""

    def __init__(
        self,
        target: Target,
        fleet: FleetConfig,
        config: FarmConfig = TUNING,
        *,
        platform: Platform | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._bests: dict[str, float] = {}
        super().__init__(target, fleet, config, platform=platform, journal=journal)

    def _shared_bests(self) -> dict[str, float]:
        return self._bests

    def _make_director(self) -> Director:
        return _TuningRpcDirector(self, self.fleet)


class _TuningRpcDirector(RpcDirector):
    def _run_message(self, job: Job, best: float) -> Message:
        message = super()._run_message(job, best)
        if job.candidate.origin == FINALIST:
            message |= as_finalist(self.config)
        return message
