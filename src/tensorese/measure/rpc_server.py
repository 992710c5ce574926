"""TVM's RPC server, made fit for measuring: `python -m tensorese.measure.rpc_server`.

It speaks TVM's own protocol, so any TVM client can use it, but unlike `tvm.exec.rpc_server` it
survives a program that crashes (0.27's listening thread ends with the first one) and tells the
client; its sessions die with it; it runs on all of its threads instead of half of them;
it listens on 127.0.0.1 by default; and it starts in a second, without torch.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
from collections.abc import Callable
from typing import Any

from tensorese.measure.foreman import die_with_parent
from tensorese.targets import usable_cores
from tensorese.tvm_env import import_tvm, set_threads

Serving = Callable[[Any, Any, dict[str, float], str], None]


def survive_crashes(serving: Serving, tell: Callable[[int, str], None]) -> Serving:
    """Wraps TVM's `_serving`, which raises, and so ends the server, when a session's process dies.

    A program that dies of its own signal is reported to the client as the program's error. SIGKILL
    comes from outside (an operator, the OOM killer): the connection just drops.
    """

    def guarded(sock: Any, address: Any, options: dict[str, float], libraries: str) -> None:
        folder = os.getcwd()  # each session works in a folder of its own
        try:
            serving(sock, address, options, libraries)
        except RuntimeError as error:
            os.chdir(folder)
            death = signal_of(str(error))
            if death is not None and death is not signal.SIGKILL:
                with contextlib.suppress(Exception):  # the client may be gone as well
                    tell(sock.fileno(), f"RPCError: the server's process died of {death.name}")
            sock.close()

    return guarded


def signal_of(message: str) -> signal.Signals | None:
    """The signal in TVM's `exited unsuccessfully with error code -11`."""
    match = re.search(r"error code -(\d+)", message)
    return signal.Signals(int(match.group(1))) if match else None


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tensorese.measure.rpc_server")
    parser.add_argument("--tracker", required=True, metavar="HOST:PORT")
    parser.add_argument("--key", required=True, help="what kind of device this is")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=9090, help="first port to try")
    parser.add_argument("--port-end", type=int, help="where to stop trying; 100 ports later")
    parser.add_argument("--custom-addr", help="address for clients, if it is not --host")
    parser.add_argument(
        "--threads", type=int, default=len(usable_cores()), help="for clients that name none"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    host, _, port = args.tracker.rpartition(":")
    if not host or not port.isdigit():
        raise SystemExit(f"--tracker must be HOST:PORT, but got {args.tracker!r}")
    import_tvm()
    set_threads(args.threads)
    from tvm.rpc import server

    server._serving = survive_crashes(server._serving, server._ffi_api.ReturnException)
    parent = os.getpid()
    os.register_at_fork(after_in_child=lambda: die_with_parent(parent))
    state = server.PopenRPCServerState(
        args.host,
        args.port,
        args.port_end or args.port + 100,
        tracker_addr=(host, int(port)),
        key=args.key,
        custom_addr=args.custom_addr,
    )
    state.thread.join()


if __name__ == "__main__":
    main()
