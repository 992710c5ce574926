"""The page of a run, served on 127.0.0.1 while the run goes on; nothing is ever called."""

from __future__ import annotations

import hashlib
import http.server
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from tensorese.errors import TensoreseError
from tensorese.records.run_folder import BATCHES, BENCH, BEST, CERTIFICATE, HEAD
from tensorese.report.gather import Report, gather
from tensorese.report.page import body, document
from tensorese.report.style import CSS

ADDRESS = "127.0.0.1"
_NAMES = (ADDRESS, "localhost")
"""What a browser here calls this machine, through a forwarded port too."""
PAUSE = 20.0
"""As many times as long as a page took to draw, the next one waits: the run needs the cores."""
_LINKS = '<link rel="stylesheet" href="style.css"><script src="live.js" defer></script>'
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class DashboardError(TensoreseError):
    """A page that cannot be served as asked."""


class Source(Protocol):
    """What is drawn: a run folder, or a stored run."""

    def state(self) -> object:
        """Changes whenever there may be something new."""

    def report(self) -> Report: ...


@dataclass(frozen=True)
class RunSource:
    path: Path

    def state(self) -> object:
        return [_stamp(self.path / name) for name in (HEAD, BATCHES, BEST, CERTIFICATE, BENCH)]

    def report(self) -> Report:
        return gather(self.path)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


class Drawing:
    """The newest drawing of a source, redrawn when there is something new, and not too often."""

    def __init__(
        self, source: Source, pause: float = PAUSE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.source = source
        self._pause = pause
        self._clock = clock
        self._guard = threading.Lock()
        self._drawn_of: object = None
        self._rests_until = 0.0
        self._report: Report | None = None
        self._text = b""

    def body(self) -> bytes:
        with self._guard:
            self._redraw()
            return self._text

    def page(self) -> bytes:
        with self._guard:
            self._redraw()
            assert self._report is not None
            return document(self._report, _LINKS, '<p id="live" class="note"></p>').encode()

    def _redraw(self) -> None:
        started = self._clock()
        if started < self._rests_until:
            return
        state = self.source.state()  # before it is read: what comes meanwhile is drawn next time
        if self._report is None or state != self._drawn_of:
            self._report = self.source.report()
            self._text, self._drawn_of = body(self._report).encode(), state
        ended = self._clock()
        self._rests_until = ended + self._pause * (ended - started)


class Dashboard(http.server.ThreadingHTTPServer):
    """`with Dashboard(source, port) as server: server.serve_forever()`; port 0 takes a free one."""

    daemon_threads = True

    def __init__(self, source: Source, port: int, pause: float = PAUSE) -> None:
        self.drawing = Drawing(source, pause)
        self.drawing.body()  # what cannot be read is refused now
        try:
            super().__init__((ADDRESS, port), _Answers)
        except OSError as error:
            raise DashboardError(
                f"port {port} of {ADDRESS} must be free ({error.strerror}); name another --port, "
                "or 0 for any that is free"
            ) from None

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone is no fault."""


class _Answers(http.server.BaseHTTPRequestHandler):
    server: Dashboard
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tensorese", ""
    timeout = 60.0

    def do_GET(self) -> None:
        # A page of another name that leads here (DNS rebinding) must not read the run.
        if urlsplit(f"//{self.headers.get('Host')}").hostname not in _NAMES:
            self._answer(HTTPStatus.FORBIDDEN, f"ask for {self.server.url}".encode())
            return
        makers: dict[str, tuple[str, Callable[[], bytes]]] = {
            "/": ("text/html", self.server.drawing.page),
            "/body": ("text/html", self.server.drawing.body),
            "/style.css": ("text/css", CSS.encode),
            "/live.js": ("text/javascript", _script),
        }
        if self.path not in makers:
            self._answer(HTTPStatus.NOT_FOUND, b"not here")
            return
        kind, make = makers[self.path]
        try:
            self._answer(HTTPStatus.OK, make(), kind)
        except TensoreseError as error:  # the folder went away, or is damaged
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error).encode())

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, text: bytes, kind: str = "text/plain") -> None:
        tag = hashlib.sha256(text).hexdigest()[:16]
        if status is HTTPStatus.OK and self.headers.get("If-None-Match") == tag:
            status, text = HTTPStatus.NOT_MODIFIED, b""
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("ETag", tag)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """What a browser asks for is no news."""


@cache
def _script() -> bytes:
    return Path(__file__).with_name("live.js").read_bytes()
