"""A fixed kernel, timed again and again through a run: if its time moves, the machine moved."""

from __future__ import annotations

import time

from tensorese.measure.config import FarmConfig
from tensorese.measure.wire import Message


class Sentinel:
    """`drift` is the latest time over the first one; it goes into every measurement."""

    def __init__(self, config: FarmConfig, target: str) -> None:
        self.target = target
        self.every = config.sentinel_secs
        self.drift = 1.0
        self.first = 0.0
        self.last_at = 0.0
        self.ran_last = False  # a candidate comes between two sentinels, however often it is due
        self.forget()

    def forget(self) -> None:
        """The built kernel is gone with its folder; the first time stays the yardstick."""
        self.artifact = ""
        self.args: list[object] = []
        self.asked = False

    def failed(self) -> None:
        """Do without: a machine that cannot run it still measures, unwatched."""
        self.every = 0.0

    @property
    def wants_build(self) -> bool:
        return self.every > 0 and not self.asked

    @property
    def is_due(self) -> bool:
        return self.every > 0 and bool(self.args) and time.monotonic() - self.last_at >= self.every

    def build_message(self, scratch: str) -> Message:
        self.asked = True
        self.artifact = f"{scratch}/sentinel.so"
        return {
            "job": -1,
            "sentinel": True,
            "target": self.target,
            "artifact": self.artifact,
            "module": "",
            "workload": "",
            "trace": "",
        }

    def run_message(self) -> Message:
        self.last_at = time.monotonic()
        self.ran_last = True
        timing = {"min_samples": 5, "max_samples": 5, "sample_ms": 2.0, "budget_ms": 50.0}
        return {
            "job": -1,
            "artifact": self.artifact,
            "args": self.args,
            "timing": timing,
            "verify": "none",
        }

    def on_reply(self, role: str, reply: Message) -> None:
        if reply["status"] != "ok":
            self.failed()
        elif role == "build":
            self.args = reply["args"]
        else:
            # The fastest sample: drift is a slower machine, not one interrupted sample.
            now = min(reply["secs"])
            self.first = self.first or now
            self.drift = now / self.first
