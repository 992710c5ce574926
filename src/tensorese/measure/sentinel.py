"""A fixed kernel, timed again and again through a run: if its time moves, the machine moved.

Its lowest time is remembered for an hour, beyond the process: a farm that comes up while the host
is busy must not take that for calm.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from tensorese.measure.config import FarmConfig
from tensorese.measure.wire import Message
from tensorese.targets import Target

_CALM = 1.06  # of its lowest time: samples of a calm machine lie closer together
_FRESH_SECS = 0.15  # what it says holds for so long
_REMEMBERED_SECS = 3600.0


class Sentinel:
    """`drift` is the latest time over the first one; it goes into every measurement."""

    def __init__(self, config: FarmConfig, target: Target, cores: object = "") -> None:
        self.target = target
        self.every = config.sentinel_secs
        self.drift = 1.0
        self.first = 0.0
        self.latest = 0.0
        self.floor = Floor(f"{target.to_json()} {cores}")
        self.last_at = 0.0
        self.ran_last = False  # a candidate comes between two sentinels, however often it is due
        self.forget()

    def forget(self) -> None:
        """The built kernel is gone with its folder; the first time stays the yardstick."""
        self.artifact = ""
        self.args: list[object] = []
        self.build_requested = False

    def failed(self) -> None:
        """Do without: a machine that cannot run it still measures, unwatched."""
        self.every = 0.0

    @property
    def wants_build(self) -> bool:
        return self.every > 0 and not self.build_requested

    @property
    def is_due(self) -> bool:
        return self.works and time.monotonic() - self.last_at >= self.every

    @property
    def is_fresh(self) -> bool:
        return bool(self.latest) and time.monotonic() - self.last_at < _FRESH_SECS

    @property
    def is_calm(self) -> bool:
        return self.latest <= _CALM * self.floor.secs

    @property
    def works(self) -> bool:
        return self.every > 0 and bool(self.args)

    def build_message(self, scratch: str) -> Message:
        self.build_requested = True
        self.artifact = f"{scratch}/sentinel.so"
        return {
            "job": -1,
            "sentinel": True,
            "target": self.target.to_json(),
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
            self.latest = min(reply["secs"])
            self.first = self.first or self.latest
            self.drift = self.latest / self.first
            self.floor.lower(self.latest)


class Floor:
    """The lowest time known of the last hour or so, of this process and others like it."""

    def __init__(self, key: str) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tensorese"
        self.path = cache / f"sentinel-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
        self.secs = float("inf")
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(self.path.read_text())
            if abs(time.time() - known["time"]) < _REMEMBERED_SECS:
                self.secs = float(known["secs"])

    def lower(self, secs: float) -> None:
        if secs >= self.secs:
            return
        self.secs = secs
        with contextlib.suppress(OSError):  # nowhere to remember it: this process does
            self.path.parent.mkdir(parents=True, exist_ok=True)
            scratch = self.path.with_suffix(f".{os.getpid()}")
            scratch.write_text(json.dumps({"secs": secs, "time": time.time()}))
            os.replace(scratch, self.path)
