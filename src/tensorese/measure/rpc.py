"""Measures on remote devices through TVM's own RPC tracker and servers.

Programs are built here by the farm's warm workers and timed on the devices, one session per
device at a time, with the farm's timing and verification. What a network does (a dropped
connection, a killed server, an expired session) is `infra_error`: tried again on another device,
never a label.

A program that crashes its session and a server that is killed look alike from here, and TVM's
own server (0.27) gives up for good after one crash; a hung program blocks its server until the
session expires. So a candidate that lost its connection or its time is tried again after all
others. `tensorese.measure.rpc_server` survives crashes and reports them: such a candidate ends
as `run_error` at once.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import defaultdict
from dataclasses import dataclass, field

from tensorese.errors import MeasureError
from tensorese.measure.base import Journal
from tensorese.measure.config import CorePlan, FarmConfig
from tensorese.measure.crew import Worker
from tensorese.measure.director import Director
from tensorese.measure.farm import Farm
from tensorese.measure.jobs import Job
from tensorese.measure.rpc_config import FleetConfig
from tensorese.measure.wire import Message
from tensorese.records.nouns import Measurement, Platform, Status
from tensorese.targets import Target, usable_cores

_HANGS_TO_BELIEVE = 2  # the first may have been the network's


class RpcMeasurer(Farm):
    """A farm whose runners are the devices of a tracker's key, as many as it has.

    Builders use every core here, also while devices time: a server on this machine is disturbed
    by them, and its measurements say so (`co_runners`).
    """

    def __init__(
        self,
        target: Target,
        fleet: FleetConfig | None = None,
        config: FarmConfig | None = None,
        *,
        platform: Platform | None = None,
        journal: Journal | None = None,
    ) -> None:
        """`fleet` is `FleetConfig.resolve()`, so TVM_TRACKER_HOST, _PORT and _KEY, by default."""
        self.fleet = fleet or FleetConfig.resolve()
        # One sentinel cannot speak for many devices.
        config = dataclasses.replace(config or FarmConfig(), sentinel_secs=0.0)
        super().__init__(target, config, platform=platform, journal=journal)

    def _plan_cores(self) -> CorePlan:
        cores = tuple(usable_cores())
        threads = self.target.threads
        return CorePlan(lanes=(), builders=cores, exclusive=False, threads=threads)

    @property
    def servers(self) -> int:
        """Devices that the tracker had at the last query."""
        return self._director.servers if isinstance(self._director, RpcDirector) else 0

    def _make_director(self) -> Director:
        return RpcDirector(self, self.fleet)


@dataclass
class _Trouble:
    """What happened to one candidate on the devices so far."""

    devices: list[str] = field(default_factory=list)
    drops: int = 0
    """Connections lost while it ran: bad luck, or it crashes the server's process."""
    hangs: int = 0

    @property
    def suspicion(self) -> int:
        return self.drops + self.hangs


class RpcDirector(Director):
    run_role = "rpc"

    def __init__(self, farm: RpcMeasurer, fleet: FleetConfig) -> None:
        super().__init__(farm)
        self.fleet = fleet
        self.second_look.looks = 0  # the next device would not be the same one
        self.servers = 0
        self.seen_at = time.monotonic()  # when there was last a server, or nothing to do
        self.where: dict[int, tuple[str, str]] = {}  # pid of a worker to its phase and device
        self.trouble: defaultdict[int, _Trouble] = defaultdict(_Trouble)

    # -- processes ------------------------------------------------------------------------

    def _start_runners(self) -> None:
        self._ask("scout", 0)  # its first report brings the runners

    def _settings(self, role: str, lane: int) -> Message:
        return {
            **super()._settings(role, lane),
            "fleet": dataclasses.asdict(self.fleet),
            "target": self.farm.target.to_json(),
            "device_threads": self.plan.threads,
        }

    def _on_report(self, report: Message) -> None:
        self.servers = report["servers"]
        if self.servers or not self._has_work():
            self.seen_at = time.monotonic()
        elif time.monotonic() - self.seen_at > self.fleet.patience:
            self._give_up(self._nobody_there(report["error"]))
        wanted = min(self.servers, self.fleet.max_servers or self.servers)
        there = sum(w.role == "rpc" for w in self.workers.values())
        there += sum(role == "rpc" for role, _ in self.requested.values())
        for lane in range(there, wanted):
            self._ask("rpc", lane)

    def _has_work(self) -> bool:
        busy = any(isinstance(w.job, Job) for w in self.workers.values())
        return bool(self.to_build or self.built or busy)

    def _give_up(self, text: str) -> None:
        """Candidates that may have emptied the fleet are answered; only others make us raise."""
        for worker in self.workers.values():
            if isinstance(worker.job, Job) and self.trouble[worker.job.id].suspicion:
                self.built.append(worker.job)
                worker.job = None
                worker.retire()
        for job in [job for job in self.built if self.trouble[job.id].suspicion]:
            self.built.remove(job)
            self._finish(
                job, Status.INFRA_ERROR, error=f"no server is left to run it again: {text}"
            )
        if self._has_work():
            raise MeasureError(text)

    def _nobody_there(self, error: str) -> str:
        fleet = self.fleet
        if error:
            return (
                f"a tracker must answer at {fleet.address}, but none did for "
                f"{fleet.patience:g} s ({error}); start one with "
                f"`python -m tvm.exec.rpc_tracker --host {fleet.host} --port {fleet.port}`"
            )
        return (
            f"the tracker at {fleet.address} must have a server of key {fleet.key!r}, but had none "
            f"for {fleet.patience:g} s; start one with `python -m tensorese.measure.rpc_server "
            f"--tracker {fleet.address} --key {fleet.key}`"
        )

    def _handle(self, worker: Worker, message: Message) -> None:
        if worker.role == "scout":
            self._on_report(message)
        elif worker.role == "rpc" and "phase" in message:
            known = self.where.get(worker.pid, ("", ""))[1]
            self.where[worker.pid] = (message["phase"], message.get("device", known))
            limits = {
                "reference": self.config.reference_timeout,
                "waiting": math.inf,  # for a device that others use; the scout sees the tracker
                "connect": self.fleet.connect_timeout,
                "run": self.config.run_timeout,
                "verify": self.config.run_timeout,
            }
            worker.allow(limits[message["phase"]])
        else:
            self.where.pop(worker.pid, None)
            super()._handle(worker, message)

    def _judge_death(self, worker: Worker, code: int) -> tuple[Status, str]:
        """The death of a local process proves nothing about a program that runs elsewhere."""
        if worker.role != "rpc":
            return super()._judge_death(worker, code)
        phase, device = self.where.pop(worker.pid, ("start", ""))
        if phase == "reference":  # computed here, without a network: the workload's own fault
            return super()._judge_death(worker, code)
        trouble = self.trouble[worker.job.id]
        trouble.devices.append(device)
        if not worker.overran:
            return Status.INFRA_ERROR, f"the rpc worker died in phase {phase} (exit code {code})"
        text = f"{phase} on {device} took longer than its limit of {worker.overran:g} s"
        if phase == "run":
            trouble.hangs += 1
            if trouble.hangs >= _HANGS_TO_BELIEVE:
                return Status.RUN_TIMEOUT, f"{text}, {trouble.hangs} times"
        return Status.INFRA_ERROR, text

    # -- scheduling -----------------------------------------------------------------------

    def _idle(self, role: str) -> list[Worker]:
        idle = super()._idle(role)
        if role != "rpc":
            return idle
        busy = sum(w.role == "rpc" and w.job is not None for w in self.workers.values())
        return idle[: max(0, self.servers - busy)]

    def _next_built(self) -> Job:
        """Candidates that may take a server down, or block it, come last."""
        job = min(self.built, key=lambda job: self.trouble[job.id].suspicion)
        self.built.remove(job)
        return job

    def _dispatch_runs(self) -> None:
        fresh = any(not self.trouble[job.id].suspicion for job in self.built)
        if fresh or not self.to_build:
            super()._dispatch_runs()

    def _run_message(self, job: Job, best: float) -> Message:
        failed = sorted(set(self.trouble[job.id].devices))
        return {
            **super()._run_message(job, best),
            "avoid": failed if len(failed) < self.servers else [],
            "session_secs": self.fleet.session_secs(self.config),
        }

    # -- results --------------------------------------------------------------------------

    def _on_run(self, job: Job, reply: Message) -> None:
        if reply["status"] == "infra_error":
            trouble = self.trouble[job.id]
            trouble.devices.append(reply["device"])
            if reply["phase_reached"] == "run":
                trouble.drops += 1
                reply["error"] += "; the server was killed or unreachable, or it crashes there"
        super()._on_run(job, reply)

    def _record(self, job: Job, status: Status, error: str, run: Message | None) -> Measurement:
        self.trouble.pop(job.id, None)
        device = (run or {}).get("device", "")
        local = device.startswith(("127.", "localhost", "::1"))
        measurement = self.recorder.measurement(
            job,
            status,
            error=error,
            run=run,
            device=device,
            faults=job.attempts,  # of the machinery, before this answer
            # Builders and other devices' clients are elsewhere, unless the server is here.
            co_runners=job.co_runners if local else 0,
        )
        return dataclasses.replace(measurement, host=device) if device else measurement
