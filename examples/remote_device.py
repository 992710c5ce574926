"""Measures programs of a network on a device that is elsewhere, over TVM's RPC.

python examples/remote_device.py [--minutes 1] [--out runs/remote]

Tracker and device are processes on 127.0.0.1 here. Elsewhere, start the tracker on a private
network, and on every device:
    python -m tensorese.measure.rpc_server --tracker HOST:9190 --key board
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

TENSORESE = (sys.executable, "-m", "tensorese")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


@contextlib.contextmanager
def started(log: Path, module: str, port: int, *arguments: str) -> Iterator[None]:
    """A process of `python -m MODULE` that listens on the port, until the block is left."""
    log.parent.mkdir(parents=True, exist_ok=True)
    place = ["--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1)]
    command = [sys.executable, "-m", module, *place, *arguments]
    with log.open("a") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        while not listens(port) and process.poll() is None:
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="zoo:bert_tiny")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=Path("runs/remote"))
    options = parser.parse_args()

    port, log = free_port(), options.out.with_suffix(".log")
    tracker = f"127.0.0.1:{port}"
    register = ("--tracker", tracker, "--key", "board")
    with (
        started(log, "tvm.exec.rpc_tracker", port),
        started(log, "tensorese.measure.rpc_server", free_port(), *register),
    ):
        collect = ["collect", "--tasks", options.network, "--minutes", str(options.minutes)]
        fleet = ["--rpc-tracker", tracker, "--rpc-key", "board", "--out", str(options.out)]
        subprocess.run([sys.executable, "-m", "tensorese", *collect, *fleet], check=True)
    subprocess.run(
        [sys.executable, "-m", "tensorese", "data", "info", str(options.out)], check=True
    )


if __name__ == "__main__":
    main()
