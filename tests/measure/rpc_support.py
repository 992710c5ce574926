"""A real tracker and real servers on loopback, in process groups that end with the test."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tensorese.measure.rpc_config import FleetConfig
from tensorese.tvm_env import import_tvm

STOCK = "tvm.exec.rpc_server"
OURS = "tensorese.measure.rpc_server"
_START_SECS = 40.0


class Fleet:
    """A tracker and servers, whose key is the name of the module that serves.

    `folder` receives the logs and a `torch` that cannot be imported: TVM starts 4x faster.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.servers: dict[str, list[subprocess.Popen[bytes]]] = {STOCK: [], OURS: []}
        (folder / "torch.py").write_text("raise ImportError('hidden from the servers')\n")
        self.port = free_port()
        ports = ["--port", str(self.port), "--port-end", str(self.port + 1)]
        self._start("tracker", ["-m", "tvm.exec.rpc_tracker", "--host", "127.0.0.1", *ports])
        wait_until(self._tracker_listens, "the tracker listens")

    def config(self, module: str, **settings: object) -> FleetConfig:
        named = {"host": "127.0.0.1", "port": self.port, "key": module, "patience": 20.0}
        return FleetConfig(**{**named, **settings})  # type: ignore[arg-type]

    def add_server(self, module: str) -> None:
        port = free_port()
        place = ["--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1)]
        tracker = ["--tracker", f"127.0.0.1:{self.port}", "--key", module]
        name = f"{module}-{len(self.servers[module])}"
        self.servers[module].append(self._start(name, ["-m", module, *place, *tracker]))

    def wait_for(self, module: str, servers: int) -> None:
        wait_until(lambda: self.count(module) == servers, f"{servers} x {module} are there")

    def count(self, module: str) -> int:
        import_tvm()
        from tensorese.measure.rpc_worker import Tracker

        tracker = Tracker({"host": "127.0.0.1", "port": self.port})
        try:
            return tracker.count_servers(module)
        finally:
            tracker.close()

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """-9 to the whole group: TVM's own SIGTERM handling leaves orphans."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in self.processes:
            self.kill(process)

    def is_serving(self, module: str, server: int) -> bool:
        """A client's program has been loaded there, and its session is not over."""
        log = (self.folder / f"{module}-{server}.log").read_text()
        _, _, session = log.rpartition("start serving")
        return session.count("load_module") == 2 and "finish serving" not in session

    def kill_at_work(self, module: str, server: int) -> None:
        """Freezes it with a program inside, then kills it: an instant later it would be done."""
        process = self.servers[module][server]
        while True:
            wait_until(lambda: self.is_serving(module, server), "a program runs there")
            os.killpg(process.pid, signal.SIGSTOP)
            if self.is_serving(module, server):
                break
            os.killpg(process.pid, signal.SIGCONT)
        self.kill(process)

    def _start(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        source = Path(__file__).resolve().parents[2] / "src"
        environment = dict(os.environ, PYTHONPATH=f"{self.folder}:{source}")
        environment.pop("TVM_NUM_THREADS", None)
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def _tracker_listens(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        return False


@contextlib.contextmanager
def fleet(folder: Path, *modules: str) -> Iterator[Fleet]:
    """A tracker with one server for each module named, all of them registered."""
    made = Fleet(folder)
    try:
        for module in modules:
            made.add_server(module)
        for module in set(modules):
            made.wait_for(module, modules.count(module))
        yield made
    finally:
        made.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], what: str, secs: float = _START_SECS) -> None:
    deadline = time.monotonic() + secs
    while not condition():
        assert time.monotonic() < deadline, f"waited {secs:g} s until {what}"
        time.sleep(0.05)
