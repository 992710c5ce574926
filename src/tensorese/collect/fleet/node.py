"""What runs on every host of a fleet: a farm of its own, a store of its own, errands answered.

Results stay here until the driver has acknowledged them, and in the host's own store besides: a
driver that was killed and started again gets them without their being measured again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from tensorese.collect.farm import ISOLATED, CollectFarm, Layout, keep_off_lanes
from tensorese.collect.fleet.check import facts_here
from tensorese.collect.fleet.wire import KnownNouns, report
from tensorese.measure.base import FINALIST, Measurer, Ticket
from tensorese.measure.config import FarmConfig
from tensorese.measure.farm import Farm
from tensorese.measure.timing import TimingConfig
from tensorese.measure.tuning_farm import TuningFarm
from tensorese.records.nouns import Measurement, Status, content_id
from tensorese.records.store import HEAD, Store
from tensorese.targets import Target, usable_cores

_IDLE_SECS = 0.01


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """How a node measures; the same for all of them."""

    target: Target
    platform: str
    run: str
    """Names the driver's store: what a host measured for one is of no use to another."""
    farm: FarmConfig = field(default_factory=FarmConfig)
    layout: Layout = ISOLATED
    tunes: bool = False
    """Whether for a search, by a `TuningFarm`; the layout is then of no account."""
    cores: int = 0
    """Cores it may build on; 0 for all that the process has."""

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "target": self.target.to_json()})

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields: dict[str, Any] = json.loads(text)
        farm = fields["farm"]
        fields["farm"] = FarmConfig(**{**farm, "timing": TimingConfig(**farm["timing"])})
        fields["target"] = Target.from_json(fields["target"])
        fields["layout"] = Layout(**fields["layout"])
        return cls(**fields)

    @property
    def folder(self) -> Path:
        return Path(tempfile.gettempdir()) / f"tensorese-node-{os.getuid()}-{self.run}"


def run_of(store: Path, platform: str) -> str:
    """What nodes know a store by: one that was made anew is another one."""
    return content_id(str(store.resolve()), (store / HEAD).read_text(), platform)


class NodeWorker:
    """Ray makes an actor of it; it knows nothing of Ray. Its messages, both ways, are JSON."""

    def __init__(self, settings: str) -> None:
        self.settings = NodeSettings.from_json(settings)
        self.nouns = KnownNouns()
        self.tickets: list[tuple[list[int], Ticket]] = []
        self.done: dict[int, Measurement] = {}
        """Measured, and not acknowledged yet."""
        self._farm: Measurer | None = None
        self._store: Store | None = None
        self._earlier: dict[str, Measurement] = {}

    def facts(self) -> str:
        return json.dumps(facts_here(self.settings.target.kind, self.settings.cores))

    def exchange(self, text: str) -> str:
        """Takes an errand; answers when something is measured, or when `wait` seconds are over."""
        message = json.loads(text)
        for job in message["ack"]:
            self.done.pop(job, None)
        self.nouns.learn(message)
        farm = self._start()
        farm.know_best(message["best"])
        for batch in message["batches"]:
            self._submit(farm, batch)
        deadline = time.monotonic() + message["wait"]
        while not self._gather() and self.tickets and time.monotonic() < deadline:
            time.sleep(_IDLE_SECS)
        return report(self.done.items())

    def close(self) -> None:
        """The end of a run. A driver that dies never calls it, and the host keeps its store."""
        if self._farm is not None:
            self._farm.close()
        if self._store is not None:
            self._store.close()
            shutil.rmtree(self.settings.folder, ignore_errors=True)
        self._farm = self._store = None

    def _start(self) -> Measurer:
        if self._farm is None:
            self._store = Store.open(self.settings.folder, create=True)
            self._earlier = _earlier(self._store, self.settings.platform)
            self._farm = self._make_farm(self._store)
        return self._farm

    def _make_farm(self, store: Store) -> Measurer:
        settings = self.settings
        config = settings.farm
        if 0 < settings.cores < len(usable_cores()):
            config = replace(config, build_workers=settings.cores)
        platform = settings.target.platform(settings.platform)
        farm: Farm
        if settings.tunes:
            farm = TuningFarm(settings.target, config, platform=platform, journal=store)
        else:
            farm = CollectFarm(
                settings.target, config, platform=platform, journal=store, layout=settings.layout
            )
        keep_off_lanes(farm.plan)
        return farm

    def _submit(self, farm: Measurer, batch: list[Mapping[str, Any]]) -> None:
        jobs, candidates = [], []
        for row in batch:
            candidate = self.nouns.candidate(row)
            again = candidate.origin == FINALIST
            earlier = None if again else self._earlier.pop(candidate.program.id, None)
            if earlier is not None:
                self.done[row["job"]] = earlier
                continue
            jobs.append(int(row["job"]))
            candidates.append(candidate)
        if jobs:
            self.tickets.append((jobs, farm.submit(candidates)))

    def _gather(self) -> bool:
        """Moves what has been measured to `done`; whether anything is there."""
        for jobs, ticket in self.tickets:
            self.done.update({jobs[index]: measurement for index, measurement in ticket.poll()})
        self.tickets = [(jobs, ticket) for jobs, ticket in self.tickets if ticket.remaining]
        return bool(self.done)


def _earlier(store: Store, platform: str) -> dict[str, Measurement]:
    """By program id, measurements that no earlier driver received, or lived to write down. Turns
    of finalists are timed anew: those that it did write down are here too."""
    if platform not in store.platforms():
        return {}
    measurements = store.measurements(platform=platform)
    trials = [m for m in measurements if m.origin != FINALIST]
    return {m.program.id: m for m in trials if m.status is not Status.INFRA_ERROR}
