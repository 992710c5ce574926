"""The farm's only long-lived parent: imports TVM once, never runs a kernel, forks workers.

A forked worker has TVM already imported, so a crashed one is back in milliseconds. The foreman
must never run compiled code: after a parallel kernel a child's own parallel run would hang.
It dies with the measuring process (its control socket closes), and its workers die with it
(PR_SET_PDEATHSIG), so that a kill -9 anywhere leaves nothing behind.

Started as `python -m tensorese.measure.foreman FD KIND SCRATCH`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

from tensorese import interrupts
from tensorese.measure.faults import EXIT_CODE, MachineFault
from tensorese.measure.wire import Message, receive_control, send_control
from tensorese.tvm_env import import_tvm, set_threads, toolchain_of

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when its parent ends, also if the parent has ended already."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _worker_main(role: str) -> Callable[[Connection, Message], None]:
    if role == "build":
        from tensorese.measure import build_worker

        return build_worker.serve
    if role in ("rpc", "scout"):
        from tensorese.measure import rpc_worker

        return rpc_worker.serve if role == "rpc" else rpc_worker.scout
    from tensorese.measure import run_worker

    return run_worker.serve


class Foreman:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.children: dict[int, int] = {}  # pid of a worker to its pidfd
        self.poll = select.poll()
        self.poll.register(control, select.POLLIN | select.POLLHUP)

    def serve(self) -> None:
        try:
            while True:
                for fd, _ in self.poll.poll():
                    if fd == self.control.fileno():
                        self._command()
                    else:
                        self._reap(fd)
        except (EOFError, ConnectionError):
            pass  # the measuring process is gone
        finally:
            for pid in self.children:
                _kill_group(pid)
            for pid in self.children:
                os.waitpid(pid, 0)
            self.children.clear()
            self._end_orphans()

    def _command(self) -> None:
        message, _ = receive_control(self.control)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(theirs, [ours], parent, message)
        theirs.close()
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)  # both sides set it, so a kill right after the fork finds it
        pidfd = os.pidfd_open(pid)
        self.children[pid] = pidfd
        self.poll.register(pidfd, select.POLLIN)
        send_control(self.control, {"spawned": pid, "tag": message["tag"]}, [ours.fileno()])
        ours.close()

    def _become_worker(
        self, mine: socket.socket, others: list[socket.socket], parent: int, message: Message
    ) -> None:
        code = 1
        try:
            os.setpgid(0, 0)
            die_with_parent(parent)
            for other in [*others, self.control]:
                other.close()
            for pidfd in self.children.values():
                os.close(pidfd)
            _log_to(f"{message['scratch']}/{os.getpid()}.log")
            _confine(message)
            _worker_main(message["role"])(Connection(mine.detach()), message)
            code = 0
        except (EOFError, ConnectionError, KeyboardInterrupt):
            code = 0  # a normal stop
        except MachineFault as fault:
            code = EXIT_CODE
            print(fault, file=sys.stderr, flush=True)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)  # never unwind into the foreman's own loop

    def _reap(self, pidfd: int) -> None:
        pid = next(p for p, fd in self.children.items() if fd == pidfd)
        _, status, _ = os.wait4(pid, 0)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        del self.children[pid]
        _kill_group(pid)  # a linker or compiler the worker had started
        self._end_orphans()
        send_control(self.control, {"exited": pid, "code": os.waitstatus_to_exitcode(status)})

    def _end_orphans(self) -> None:
        """What a candidate had started in a session of its own: it is this process's child now."""
        while orphans := _children() - self.children.keys():
            for pid in orphans:
                _kill_group(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def _children() -> set[int]:
    """Of this process; none where the kernel does not list them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as listed:
            return {int(pid) for pid in listed.read().split()}
    except OSError:
        return set()


def _log_to(path: str) -> None:
    """A dying worker's last words belong to its candidate's record, not to the user's screen."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _confine(message: Message) -> None:
    if message.get("cores"):
        os.sched_setaffinity(0, message["cores"])
    if message.get("memory_bytes"):
        # Address space beyond what is mapped already, so that a runaway allocation fails inside
        # the worker instead of waking the kernel's OOM killer on somebody else.
        with open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        limit = mapped + int(message["memory_bytes"])
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        if most != resource.RLIM_INFINITY and most < limit:
            raise MachineFault(
                f"a worker may need {limit >> 20} MiB of address space, but `ulimit -v` allows "
                f"{most >> 20}; raise it"
            )
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if message.get("threads"):
        set_threads(int(message["threads"]))
    os.environ["TVM_BIND_THREADS"] = "0"  # TVM knows cores 0, 1, ... only: runners pin themselves


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def main(argv: list[str]) -> None:
    control = socket.socket(fileno=int(argv[0]))
    control.set_inheritable(False)
    interrupts.ignored()  # Ctrl-C and its like are the measuring process's to handle
    toolchain = _preload(argv[1])
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # after whatever the imports have started
    try:
        send_control(control, {"ready": os.getpid(), "toolchain": toolchain})
        Foreman(control).serve()
    finally:
        shutil.rmtree(argv[2], ignore_errors=True)  # if the measuring process was killed


def _preload(kind: str) -> dict[str, str]:
    """Everything a worker will need, imported once here and inherited by every fork."""
    import_tvm(kind)
    from tensorese.measure import build_worker, run_worker

    build_worker.warm_up(kind)
    del run_worker
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, the shared pages
    return toolchain_of(kind)


if __name__ == "__main__":
    main(sys.argv[1:])
