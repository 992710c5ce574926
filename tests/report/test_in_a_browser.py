"""The page as a browser shows it: wide, narrow, and live."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from browser_support import browser
from run_support import append, batch, dashboard, good_run, head, measured, write
from tensorese.report import write_report
from tensorese.report.replay import Replay, stored
from test_live import served

pytestmark = [pytest.mark.null, pytest.mark.slow]

TRIALS = """[...document.querySelectorAll('.tile span')]
  .find(name => name.textContent == 'trials').previousSibling.textContent"""
OUTSIDE = """[...document.querySelectorAll('td, .tile b, .value, dd, figure, p')]
  .filter(one => one.getBoundingClientRect().right > innerWidth + 1 ||
                 one.getBoundingClientRect().left < 0).map(one => one.textContent)"""
WIDER = "document.documentElement.scrollWidth > innerWidth"
LONG = "fused_" + "_".join(f"conv2d{n}_add{n}_relu{n}" for n in range(20)) + "_scheduled"


def long_run(folder: Path) -> Path:
    """Kernels whose names are wider than any screen, and a rival with a long name."""
    named = head(8, peak_gflops=100.0, network=LONG)
    named["tasks"][0] |= {"name": LONG.replace("_", ""), "shapes": ["1x8x8x8x8x8"] * 12}
    run = write(folder, named, [batch(8, 9.0, [0], 1e-3)], [measured(8, 0, 1e-3)])
    rows = {"latency": 1e-3, "rounds": [9e-4, 1e-3, 1.2e-3], "runs": 9}
    kernels = [{"kernel": LONG, "secs": 3e-3, "calls": 2, "workload": None, "promised": 1e-3}]
    latency = {"tuned": rows, "untuned": {"latency": 0.5}, "torch.compile with CUDA graphs": rows}
    (run / "certificate.json").write_text(json.dumps({"latency": latency, "kernels": kernels}))
    return run


@pytest.mark.parametrize("width", [1200, 420])
def test_everything_is_inside_the_window(tmp_path: Path, width: int) -> None:
    path = write_report(long_run(tmp_path / "run"))
    with browser(tmp_path / "profile") as chromium:
        chromium.open(path.as_uri(), width)
        assert chromium.value("document.querySelectorAll('td').length") > 10
        assert chromium.value(OUTSIDE) == [] and not chromium.value(WIDER)
        assert chromium.requests == [path.as_uri()] and chromium.complaints == []


def test_progress_moves_and_only_its_own_address_is_called(tmp_path: Path) -> None:
    run = good_run(tmp_path / "run")
    with browser(tmp_path / "profile") as chromium, dashboard(str(run)) as (process, url):
        chromium.open(url)
        assert chromium.value(TRIALS) == "5"
        path = chromium.value("document.querySelector('figure .line').getAttribute('d')")
        chromium.value("document.querySelector('details').open = true")
        append(run, batch(8, 30.0, [20, 21], 1e-4), [measured(8, 20, 1e-4), measured(8, 21, 1e-3)])
        chromium.wait_for(f"{TRIALS} == '7'")
        curve = "document.querySelector('figure .line').getAttribute('d')"
        assert chromium.value(curve) != path
        assert chromium.value("document.querySelector('details').open") is True
        assert chromium.value("getComputedStyle(document.body).maxWidth") == "1120px"  # styled
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        chromium.wait_for("document.querySelector('#live').textContent.includes('has ended')")
        assert len(chromium.requests) >= 5
        assert all(asked.startswith(url) for asked in chromium.requests)
        refused = [said for said in chromium.complaints if "ERR_CONNECTION_REFUSED" not in said]
        assert refused == []


def test_the_demo_moves_to_its_end(tmp_path: Path) -> None:
    with (
        browser(tmp_path / "profile") as chromium,
        served(Replay(stored(), secs=8.0)) as server,
    ):
        chromium.open(server.url, 420)
        first = chromium.value(TRIALS)
        chromium.wait_for("document.body.textContent.includes('Outputs verified')")
        assert int(first) < int(chromium.value(TRIALS))
        assert chromium.value(OUTSIDE) == [] and not chromium.value(WIDER)
        assert all(asked.startswith(server.url) for asked in chromium.requests)
