"""A headless browser spoken to over a pipe: pages opened, asked, and what they requested."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
_PATIENCE = 40.0


class Browser:
    """One page, at `Browser.open`; `requests` are the addresses that it asked for."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self.process, self._to, self._back = process, to, back
        self._number, self._left = 0, b""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Network", "Log", "Runtime", "Page"):
            self._ask(f"{domain}.enable", self._session)

    def open(self, url: str, width: int = 1200, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", self._session, **size)
        self._ask("Page.navigate", self._session, url=url)
        self.wait_for("document.readyState == 'complete' && location.href != 'about:blank'")

    def value(self, script: str) -> Any:
        asked = {"expression": script, "returnByValue": True}
        return self._ask("Runtime.evaluate", self._session, **asked)["result"].get("value")

    def wait_for(self, script: str) -> None:
        ends = time.monotonic() + _PATIENCE
        while not self.value(script):
            assert time.monotonic() < ends, f"{script} never came true"
            time.sleep(0.1)

    def _ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._read()
            if reply.get("id") == self._number:
                assert "result" in reply, reply
                result: dict[str, Any] = reply["result"]
                return result
            self._note(reply)

    def _note(self, event: dict[str, Any]) -> None:
        method, said = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(said["exceptionDetails"]))
        elif method == "Log.entryAdded" and "favicon" not in said["entry"].get("url", ""):
            self.complaints.append(said["entry"]["text"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            assert select.select([self._back], [], [], _PATIENCE)[0], "the browser does not answer"
            more = os.read(self._back, 1 << 16)
            assert more, "the browser has ended"
            self._left += more
        line, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Skips the test where there is none."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no browser: apt-get install chromium")
    read_here, write_there = os.pipe()
    read_there, write_here = os.pipe()
    # The browser reads from 3 and writes to 4; a shell puts them there.
    shell = f'exec "$0" "$@" 3<&{read_there} 4>&{write_there}'
    process = subprocess.Popen(
        ["bash", "-c", shell, program, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(read_there, write_there),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(read_there)
    os.close(write_there)
    try:
        yield Browser(process, write_here, read_here)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(write_here)
        os.close(read_here)
