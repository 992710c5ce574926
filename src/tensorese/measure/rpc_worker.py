"""The local end of the RPC fleet: one process per device in use, and a scout at the tracker.

A process holds no session between candidates: each gets a fresh one, hence a fresh process on
the server, so that nothing a program breaks can reach the next, and others may use the device.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import rpc
from tvm.error import RPCError
from tvm.rpc import base as protocol
from tvm.rpc.client import TrackerSession

from tensorese.measure.build_worker import short
from tensorese.measure.linking import link
from tensorese.measure.referee import Referee
from tensorese.measure.run_worker import Runner
from tensorese.measure.wire import Message, receive, send

_SCOUT_SECS = 1.0
_RPC_PREFIX = "RPCError: Error caught from RPC call: "
_TRACKER_SECS = 5.0  # a tracker that takes longer to answer is as good as gone


def serve(connection: Connection, settings: Message) -> None:
    worker = RpcWorker(settings, notify=lambda message: send(connection, message))
    while True:
        send(connection, worker.run(receive(connection)))


def scout(connection: Connection, settings: Message) -> None:
    """Tells every second how many servers of our key the tracker has, busy ones included."""
    fleet = settings["fleet"]
    while True:
        try:
            report = {"servers": Tracker(fleet).count_servers(fleet["key"]), "error": ""}
        except (OSError, RuntimeError, ValueError) as error:
            report = {"servers": 0, "error": short(error)}
        send(connection, report)
        if connection.poll(_SCOUT_SECS):
            receive(connection)  # nobody writes to a scout: this is the end


class Tracker(TrackerSession):  # type: ignore[misc]
    """TVM's client, but it answers at once, and separates getting a device from reaching it."""

    def __init__(self, fleet: Message) -> None:
        super().__init__((fleet["host"], fleet["port"]))

    def _connect(self) -> None:
        # TVM would retry a refused connection for a minute before it says anything.
        socket.create_connection(self._addr, timeout=_TRACKER_SECS).close()
        super()._connect()

    def count_servers(self, key: str) -> int:
        self._sock.settimeout(_TRACKER_SECS)
        servers = self.summary()["server_info"]
        return sum(server["key"] == f"server:{key}" for server in servers)

    def match(self, key: str, priority: int) -> tuple[str, int, str]:
        """Host, port and one-time key of a device that is now ours; waits until one is free."""
        protocol.sendjson(self._sock, [protocol.TrackerCode.REQUEST, key, "", priority])
        code, reply = protocol.recvjson(self._sock)
        if code != protocol.TrackerCode.SUCCESS:
            raise RuntimeError(f"the tracker answered a request for {key!r} with {reply!r}")
        host, port, one_time_key = reply
        return str(host), int(port), str(one_time_key)


class RpcWorker:
    def __init__(self, settings: Message, notify: Callable[[Message], None]) -> None:
        self.fleet: Message = settings["fleet"]
        self.kind: str = settings["kind"]
        self.scratch: str = settings["scratch"]
        self.target: str = settings["target"]
        self.threads: int = settings["device_threads"]
        self.notify = notify
        self.phase = ""
        self.device = ""

    def run(self, job: Message) -> Message:
        reply: Message = {"job": job["job"], "status": "ok", "error": "", "secs": []}
        self.device = ""
        try:
            self._prepare_reference(job)
            self._enter("waiting")
            host, port, key = self._match(job["avoid"])
            self._enter("connect")
            session = rpc.connect(host, port, key, job["session_secs"])
            reply |= self._run_in(session, job)
        except RPCError as error:  # sent by the server, so the connection stands
            status = "run_error" if self.phase == "run" else "infra_error"
            reply |= {"status": status, "error": short(error).replace(_RPC_PREFIX, "")}
        except Exception as error:
            status = "run_error" if self.phase in ("reference", "local") else "infra_error"
            reply |= {"status": status, "error": self._explain(error)}
        session = None
        gc.collect()  # an error's traceback must not keep the device from its next user
        reply |= {"device": self.device, "phase_reached": self.phase}
        reply["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return reply

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self.notify({"phase": phase, "device": self.device})

    def _explain(self, error: Exception) -> str:
        where = f" on {self.device}" if self.device else ""
        return f"{self.phase} failed{where}: {short(error)}"

    def _prepare_reference(self, job: Message) -> None:
        """Before a device is requested: none should stand still while numpy computes."""
        referee = Referee(scratch=self.scratch, device=tvm.cpu())
        if job["verify"] != "none" and not referee.has(job["workload_id"], job["seed"]):
            self._enter("reference")
            referee.prepare(job["workload_id"], job["workload"], job["seed"])

    def _match(self, avoid: list[str]) -> tuple[str, int, str]:
        """A device other than those that failed this candidate, if the tracker has another.

        A device that is passed over offers itself again after some seconds.
        """
        tracker = Tracker(self.fleet)
        try:
            for _ in range(len(avoid) + 1):
                host, port, key = tracker.match(self.fleet["key"], self.fleet["priority"])
                self.device = f"{host}:{port}"
                if self.device not in avoid:
                    break
            return host, port, key
        finally:
            tracker.close()

    def _run_in(self, session: Any, job: Message) -> Message:
        if self.kind == "llvm":
            self._set_threads(session)
        name = os.path.basename(job["artifact"])
        session.upload(job["artifact"], name)
        self._enter("run")
        try:
            return RemoteRunner(session, kind=self.kind, scratch=self.scratch).run_loaded(
                session.load_module(name), job, self.notify
            )
        except RPCError:
            raise
        except Exception:
            if _is_alive(session):
                self.phase = "local"  # the connection stands: what failed is on our side
            raise

    def _set_threads(self, session: Any) -> None:
        """The target's thread count, fixed in the session's process before its pool starts.

        TVM's pool takes TVM_NUM_THREADS or half of the cores when it starts, and
        `runtime.config_threadpool` can only lower that later. So the session calls `setenv`, from
        a library we send; a server that cannot load it must have the variable in its environment.
        """
        path = Path(self.scratch) / f"threads-{self.threads}.so"
        if not path.exists():
            partial = path.with_suffix(f".{os.getpid()}.so")
            _build_setenv(self.target, "TVM_NUM_THREADS", str(self.threads), str(partial))
            os.replace(partial, path)
        session.upload(str(path), path.name)
        cells = [tvm.runtime.tensor(np.zeros(1, "int32"), session.cpu()) for _ in range(2)]
        session.load_module(path.name)["main"](*cells)
        count = session.get_function("runtime.NumThreads")
        if int(count()) != self.threads:
            session.get_function("runtime.config_threadpool")(1, self.threads)
        threads = int(count())
        if threads != self.threads:
            raise RuntimeError(
                f"the server must run {self.threads} threads, but runs {threads}; "
                f"start it with TVM_NUM_THREADS={self.threads}"
            )


class RemoteRunner(Runner):
    """The farm's runner with its tensors, its clock and its device in one RPC session."""

    def __init__(self, session: Any, *, kind: str, scratch: str) -> None:
        self.kind = kind
        self.device = session.device("cpu" if kind == "llvm" else kind, 0)
        self.referee = Referee(scratch=scratch, device=self.device)
        self.tensors = {}

    def _one_run(self, library: Any, args: list[Any]) -> float:
        """Not timed: the network's delay would make fast programs look hopeless."""
        return 0.0


def _is_alive(session: Any) -> bool:
    try:
        session.get_function("runtime.NumThreads")
    except Exception:
        return False
    return True


def _build_setenv(target: str, name: str, value: str, path: str) -> None:
    """A library for the device whose `main` sets one environment variable of its process."""
    x = tvm.te.placeholder((1,), name="x", dtype="int32")
    call = tvm.tirx.call_extern("int32", "setenv", name, value, 1)
    y = tvm.te.compute((1,), lambda i: x[i] + call, name="y")
    module = tvm.IRModule({"main": tvm.te.create_prim_func([x, y])})
    link(tvm.build(module, target=tvm.target.Target(json.loads(target))), path, target)
