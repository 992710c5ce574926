"""Hosts of a fleet in this process, instead of actors of Ray: real farms, real messages."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import replace

from tensorese.collect.fleet.handout import Node, NodeLost
from tensorese.collect.fleet.measurer import Cluster
from tensorese.collect.fleet.node import NodeSettings, NodeWorker
from tensorese.measure.config import FarmConfig
from tensorese.measure.tuning_farm import TUNING
from tensorese.targets import Target

_runs = itertools.count()


def node_settings(target: Target, *, tunes: bool = False) -> NodeSettings:
    """Of a run of its own."""
    return NodeSettings(
        target=target,
        platform=target.platform().name,
        run=f"test-{os.getpid()}-{next(_runs)}",
        farm=TUNING if tunes else FarmConfig(),
        tunes=tunes,
    )


class Host(Node):
    """A real node worker; it dies when it should give its n-th answer with results in it."""

    window = 16

    def __init__(self, settings: NodeSettings, name: str = "here", dies_at: int = 0) -> None:
        self.name = name
        # On one machine hosts would share a folder.
        self.worker = NodeWorker(replace(settings, run=f"{settings.run}-{name}").to_json())
        self.text: str | None = None
        self.dies_at = dies_at
        self.answers = 0

    def call(self, text: str) -> None:
        self.text = self.worker.exchange(text)

    def answer(self) -> str | None:
        text, self.text = self.text, None
        self.answers += bool(self.worker.done)
        if self.dies_at and self.answers >= self.dies_at:
            raise NodeLost("killed")
        return text

    def stop(self) -> None:
        self.worker.close()


class Hosts(Cluster):
    def __init__(self, *hosts: Host) -> None:
        self.hosts = hosts
        self.coming: list[Node] = list(hosts)
        self.gone: list[str] = []

    def joined(self) -> list[Node]:
        coming, self.coming = self.coming, []
        return coming

    def lost(self, node: Node, why: str) -> None:
        self.gone.append(node.name)

    def wait(self, secs: float) -> None:
        time.sleep(0.001)

    def absence(self) -> str:
        return "every host is away"

    def close(self) -> None:
        for host in self.hosts:
            host.stop()
