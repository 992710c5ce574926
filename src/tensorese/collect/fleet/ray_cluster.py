"""The nodes of a Ray cluster: one measuring actor each, which takes the whole node.

Ray moves our JSON text between hosts; rows and results are never pickled objects.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tensorese.collect.fleet.check import facts_here, mismatch
from tensorese.collect.fleet.handout import Node, NodeLost
from tensorese.collect.fleet.measurer import Cluster, FleetMeasurer
from tensorese.collect.fleet.node import NodeSettings, NodeWorker
from tensorese.errors import MeasureError
from tensorese.measure.base import Journal
from tensorese.targets import usable_cores

_LOOK_SECS = 1.0  # between looks for new nodes
_RETURN_SECS = 5.0  # before a node that was lost is tried again: Ray notices a death late
_MOST_LOSSES = 4
_BUSY_SECS = 20.0  # until we say that somebody else has the node
_CLOSE_SECS = 10.0
_STORE_BYTES = 100 << 20  # of a cluster of our own: messages are small


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """Which cluster. Ray trusts whoever reaches it: keep it on a private network."""

    address: str
    """HOST:PORT of its head, `auto` for the one of this machine, `local` for one of our own."""
    patience: float = 60.0
    """Seconds without any node, after which a run gives up."""

    def __str__(self) -> str:
        return f"nodes of the Ray cluster {self.address!r}"

    def __post_init__(self) -> None:
        if self.address in ("auto", "local"):
            return
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdigit() or "/" in host:
            raise MeasureError(
                f"--ray must be HOST:PORT, auto or local, but got {self.address!r}; "
                "`ray status` on the head node tells its address"
            )


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MeasureError(
            "measuring over Ray needs the package ray, but it is not installed; "
            "pip install 'tensorese[ray]' on every host"
        ) from None
    return ray


def connect(config: RayConfig) -> None:
    """Joins the cluster as a driver, or starts one on this machine alone."""
    check_reachable(config)
    ray = import_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if config.address == "local":
        options |= {"num_cpus": len(usable_cores()), "include_dashboard": False}
        options |= {"object_store_memory": _STORE_BYTES}
    try:
        ray.init(address=config.address, **options)
    except Exception as error:  # Ray raises whatever went wrong inside
        reason = " ".join(str(error).split())[:200]
        raise MeasureError(
            f"this machine must be part of the Ray cluster at {config.address}, but Ray says: "
            f"{reason}; run `ray start --address HOST:PORT --num-cpus 0` here first"
        ) from None


def check_reachable(config: RayConfig) -> None:
    """Refuses at once what Ray would try for minutes."""
    import_ray()
    if config.address in ("auto", "local"):
        return
    host, _, port = config.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise MeasureError(
            f"a Ray cluster must answer at {config.address}, but none does ({error}); "
            f"start its head with `ray start --head --port {port}`"
        ) from None


class RayNode(Node):
    """An actor that has all CPUs of one node, hence the only one there."""

    def __init__(
        self, ray: Any, info: Mapping[str, Any], name: str, settings: NodeSettings
    ) -> None:
        self.ray = ray
        self.id = str(info["NodeID"])
        self.name = name
        self.window = 0
        self.started = time.monotonic()
        self.mentioned = False
        cpus = float(info["Resources"]["CPU"])
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        actor = ray.remote(NodeWorker).options(
            num_cpus=cpus,
            num_gpus=0 if settings.target.is_cpu else 1,
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(self.id, soft=False),
            max_restarts=0,
            max_task_retries=0,
        )
        self.actor = actor.remote(replace(settings, cores=max(1, int(cpus))).to_json())
        self.reference: Any = self.actor.facts.remote()  # of the call it is working on

    def call(self, text: str) -> None:
        try:
            self.reference = self.actor.exchange.remote(text)
        except self.ray.exceptions.RayError as error:
            raise NodeLost(_brief(error)) from None

    def answer(self) -> str | None:
        try:
            ready, _ = self.ray.wait([self.reference], timeout=0)
            if not ready:
                return None
            message, self.reference = self.ray.get(self.reference), None
            return str(message)
        except self.ray.exceptions.RayError as error:
            raise NodeLost(_brief(error)) from None

    def stop(self) -> None:
        with contextlib.suppress(Exception):  # it may be dead already, in many ways
            self.ray.kill(self.actor)

    def farewell(self) -> Any:
        """Lets it close its farm and tidy up; a reference to wait for."""
        return self.actor.close.remote()


class RayCluster(Cluster):
    """`say` gets a line when a node joins, is refused or is lost."""

    def __init__(
        self,
        config: RayConfig,
        settings: NodeSettings,
        *,
        planners: int = 0,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`planners`: processes of the driver that a node on its own machine has beside it."""
        connect(config)
        self.ray = import_ray()
        self.config = config
        self.settings = settings
        self.planners = planners
        self.say = say
        self.here = facts_here(settings.target.kind)
        self.starting: dict[str, RayNode] = {}
        self.ready: dict[str, RayNode] = {}
        self.refused: dict[str, str] = {}  # id of a node to its name and why
        self.losses: dict[str, tuple[int, float]] = {}  # how often, and when last
        self.names: dict[str, str] = {}
        self.looked_at = -_LOOK_SECS

    # -- joining -----------------------------------------------------------------------------

    def joined(self) -> list[Node]:
        if time.monotonic() - self.looked_at >= _LOOK_SECS:
            self.looked_at = time.monotonic()
            self._look_around()
        return [node for node in list(self.starting.values()) if self._is_welcome(node)]

    def _look_around(self) -> None:
        for info in self.ray.nodes():
            key = str(info["NodeID"])
            known = key in self.starting or key in self.ready or key in self.refused
            if not known and info["Alive"] and info["Resources"].get("CPU") and self._may_try(key):
                name = self.names.setdefault(key, self._name(info))
                self.starting[key] = RayNode(self.ray, info, name, self.settings)

    def _may_try(self, key: str) -> bool:
        count, when = self.losses.get(key, (0, 0.0))
        return not count or time.monotonic() - when > _RETURN_SECS

    def _name(self, info: Mapping[str, Any]) -> str:
        label = str(info.get("NodeName") or "")
        plain = label if label != info["NodeManagerAddress"] else ""
        name = plain or str(info["NodeManagerHostname"])
        return f"{name}-{info['NodeID'][:6]}" if name in self.names.values() else name

    def _is_welcome(self, node: RayNode) -> bool:
        """Whether it has reported its machine, and that is the target's."""
        try:
            text = node.answer()
        except NodeLost as lost:
            self.lost(node, str(lost))
            return False
        if text is None:
            self._mention(node)
            return False
        facts = json.loads(text)
        del self.starting[node.id]
        why = mismatch(self.settings.target, facts, self.here)
        if why:
            self._refuse(node, why)
            return False
        node.window = max(16, 6 * int(facts["cores"]))
        node.beside = self.planners if facts["host"] == self.here["host"] else 0
        self.ready[node.id] = node
        self.say(f"node {node.name} joins: {facts['mcpu']}, {facts['cores']} cores")
        return True

    def _mention(self, node: RayNode) -> None:
        if not node.mentioned and time.monotonic() - node.started > _BUSY_SECS:
            node.mentioned = True
            self.say(f"node {node.name}: waiting for its CPUs, which something else uses")

    def _refuse(self, node: RayNode, why: str) -> None:
        self.refused[node.id] = f"{node.name} was refused: {why}"
        node.stop()
        self.say(f"node {node.name} is refused: {why}")

    def lost(self, node: Node, why: str) -> None:
        assert isinstance(node, RayNode)
        self.starting.pop(node.id, None)
        known = self.ready.pop(node.id, None)
        count = self.losses.get(node.id, (0, 0.0))[0] + 1
        self.losses[node.id] = (count, time.monotonic())
        node.stop()
        if known is not None or count == 1:
            self.say(f"node {node.name} is lost: {why}")
        if count >= _MOST_LOSSES:
            self._refuse(node, f"it was lost {count} times ({why})")

    # -- waiting and ending ------------------------------------------------------------------

    def wait(self, secs: float) -> None:
        nodes = (*self.ready.values(), *self.starting.values())
        references = [node.reference for node in nodes if node.reference is not None]
        if references:
            self.ray.wait(references, num_returns=1, timeout=secs)
        else:
            time.sleep(secs)

    def absence(self) -> str:
        waiting = [f"{node.name} is still starting" for node in self.starting.values()]
        states = "; ".join([*self.refused.values(), *waiting]) or "none offers CPUs"
        return (
            f"{states}; start one with `ray start --address {self.config.address}`, "
            "or name the nodes' --target"
        )

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a run's result must not hang on how a node ends
            ends = [node.farewell() for node in self.ready.values()]
            self.ray.wait(ends, num_returns=len(ends), timeout=_CLOSE_SECS) if ends else None
        for node in (*self.ready.values(), *self.starting.values()):
            node.stop()
        # It prints what its threads have kept back.
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            self.ray.shutdown()


@contextlib.contextmanager
def ray_fleet(
    config: RayConfig,
    settings: NodeSettings,
    *,
    planners: int,
    journal: Journal | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[FleetMeasurer]:
    """The nodes of a cluster as a measurer, as `RayCluster` has them."""
    out: Any = _Ours(sys.stdout)
    with contextlib.redirect_stdout(out):
        cluster = RayCluster(config, settings, planners=planners, say=say)
        platform = settings.target.platform(settings.platform)
        with FleetMeasurer(cluster, platform, journal=journal, patience=config.patience) as fleet:
            yield fleet


class _Ours:
    """Stdout without what Ray's threads print: pages of a dead node's log, where results belong."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        rays = threading.current_thread().name.startswith("ray_")
        return len(text) if rays else int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _brief(error: BaseException) -> str:
    """One line of an error that Ray spreads over pages: our own exception, or the lost process."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return f"{type(cause).__name__}: {' '.join(str(cause).split())}"[:200]
    return f"its process is gone ({type(error).__name__})"
