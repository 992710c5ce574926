"""`tensorese collect` for a fleet, asked for nonsense: one line, exit code 2."""

from __future__ import annotations

import importlib.util
import socket
import sys
import time

import pytest

from tensorese.cli import run
from tensorese.cli.collect_view import Lines, summary_lines
from tensorese.collect.collector import HostTally, Tally
from tensorese.collect.fleet.ray_cluster import RayConfig
from tensorese.errors import MeasureError

pytestmark = pytest.mark.null


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    code = run(["collect", "--tasks", "x", "--out", "s", *options])
    said = capsys.readouterr().err
    assert code == 2 and len(said.strip().splitlines()) == 1, said
    return said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ray", "local", "--rpc-tracker", "h:1"), "exclude each other"),
        (("--ray", "local", "--lanes", "2"), "--lanes arranges the lanes of this machine"),
        (("--ray", "local", "--calibrate"), "--calibrate arranges"),
        (("--rpc", "h:1", "--rpc-key", "k", "--beside"), "--beside arranges"),
        (("--rpc", "h:x", "--rpc-key", "k"), "port must be a number, but got 'x'"),
        (("--rpc", "h:1"), "TVM_TRACKER_KEY"),
        (("--ray", "nowhere"), "must be HOST:PORT, auto or local, but got 'nowhere'"),
        (("--ray", "ray://h:1"), "must be HOST:PORT"),
        (("--again", "500"), "add --programs STORE"),
        (("--only-programs",), "add --programs STORE"),
        (("--again", "500", "--programs", "s", "--group", "0"), "'--group': 0 is not in the range"),
    ],
)
def test_contradictions_are_one_line(
    options: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TVM_TRACKER_KEY", raising=False)
    assert said in refused(capsys, *options)


def test_a_missing_extra_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'tensorese[ray]'" in refused(capsys, "--ray", "local")


@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="the extra `ray` is not installed")
def test_a_wrong_address_is_answered_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        said = refused(capsys, "--ray", address)  # bound, but nobody listens
    assert f"a Ray cluster must answer at {address}, but none does" in said


def test_an_address_is_checked() -> None:
    assert RayConfig(address="auto").address == "auto"
    with pytest.raises(MeasureError, match="must be HOST:PORT"):
        RayConfig(address=":6379")


def test_hosts_and_their_rates_are_told() -> None:
    tally = Tally(measured=30)
    tally.by_status.update({"ok": 28, "build_error": 2})
    now = time.monotonic()
    tally.hosts = {
        "b": HostTally(measured=11, first=now - 5, last=now),
        "a": HostTally(measured=19, first=now - 3, last=now - 1),
        "dead": HostTally(measured=9, first=now - 90, last=now - 60),
    }
    line = Lines("p", fleet=True).line(tally)
    assert line.endswith("; 2 build_error; 2 nodes: a 9.0/s, b 2.0/s")
    assert "nodes" not in Lines("p").line(tally)


def test_the_summary_tells_differences_by_host() -> None:
    result = {
        "platform": "p",
        "measured": 2,
        "seconds": 1.0,
        "programs_per_sec": 2.0,
        "by_status": {"ok": 2},
        "rejected_share": 0.0,
        "store": "s",
        "hosts": {"a": {"measured": 1, "programs_per_sec": 0.0}},
        "again": {"a": {"n": 7, "median": 0.01, "p90": 0.05, "bias": -0.002}},
    }
    first, again = summary_lines(result)
    assert first.startswith("p: 2 programs in 1 s (2.0/s): 2 ok;")
    assert again == "  a: 7 measured again, differences: median 1.0%, p90 5.0%, bias -0.2%"
