"""Where the RPC fleet is: TVM's tracker and the key of the devices to measure on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tensorese.errors import MeasureError
from tensorese.measure.config import FarmConfig

SESSION_GRACE = 2.0


@dataclass(frozen=True, kw_only=True)
class FleetConfig:
    """One kind of device behind one tracker.

    TVM's RPC is plain text and runs whatever it is sent: keep tracker and servers on 127.0.0.1
    or a private network, and reach them through an SSH tunnel.
    """

    host: str
    port: int
    key: str
    priority: int = 1
    """Of our requests among those of other users of the tracker; higher goes first."""
    max_servers: int = 0
    """How many devices to use at once; 0 for as many as the tracker has."""
    connect_timeout: float = 10.0
    """For reaching a device that the tracker has assigned, and uploading one program to it."""
    patience: float = 30.0
    """How long candidates wait for a tracker or a device when there is none, before we give up."""

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise MeasureError(f"a tracker's port must be in 1..65535, but got {self.port}")
        if self.max_servers < 0:
            raise MeasureError(f"max_servers must be 0 or more, but got {self.max_servers}")
        for name in ("connect_timeout", "patience"):
            if getattr(self, name) <= 0:
                raise MeasureError(f"{name} must be positive, but got {getattr(self, name)}")

    @classmethod
    def resolve(
        cls,
        host: str = "",
        port: int | str = 0,
        key: str = "",
        *,
        env: Mapping[str, str] = os.environ,
    ) -> Self:
        """A field left out comes from TVM_TRACKER_HOST, TVM_TRACKER_PORT and TVM_TRACKER_KEY."""
        tracker = "--rpc-tracker HOST:PORT"
        number = str(port or "") or _variable(env, "TVM_TRACKER_PORT", tracker)
        if not number.isdigit():
            raise MeasureError(
                f"a tracker's port must be a number, but got {number!r}; "
                f"set TVM_TRACKER_PORT or {tracker}"
            )
        return cls(
            host=host or _variable(env, "TVM_TRACKER_HOST", tracker),
            port=int(number),
            key=key or _variable(env, "TVM_TRACKER_KEY", "--rpc-key KEY"),
        )

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"devices {self.key!r} of the tracker at {self.address}"

    def session_secs(self, config: FarmConfig) -> float:
        """When the server itself ends a session: our own limits come first if we are alive."""
        return self.connect_timeout + config.run_timeout + SESSION_GRACE


def _variable(env: Mapping[str, str], name: str, flag: str) -> str:
    value = env.get(name, "")
    if not value:
        raise MeasureError(f"measuring over RPC needs {name}, but it is not set; set it or {flag}")
    return value
