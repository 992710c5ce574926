"""The dashboard's server, asked as a browser would ask it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from run_support import append, batch, good_run, measured
from tensorese.records.run_folder import RunFolderError
from tensorese.report.gather import Parts, Report, assemble, gather
from tensorese.report.live import Dashboard, DashboardError, Drawing, RunSource, Source
from tensorese.report.replay import DEMO, Replay, stored

pytestmark = pytest.mark.null


@contextmanager
def served(source: Source) -> Iterator[Dashboard]:
    with Dashboard(source, 0, pause=0.0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(
    server: Dashboard, path: str, method: str = "GET", **headers: str
) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text, dict(reply.getheaders())


def test_the_page_is_the_reports_and_follows_the_run(tmp_path: Path) -> None:
    run = good_run(tmp_path / "run")
    with served(RunSource(run)) as server:
        status, page, _ = ask(server, "/")
        _, body, headers = ask(server, "/body")
        assert status == 200 and body in page and "<b>5</b><span>trials" in body
        tag = headers["ETag"]
        assert ask(server, "/body", If_None_Match=tag)[:2] == (304, "")
        append(run, batch(8, 30.0, [20, 21], 1e-4), [measured(8, 20, 1e-4)])
        status, body, headers = ask(server, "/body", If_None_Match=tag)
        assert status == 200 and "<b>7</b><span>trials" in body and headers["ETag"] != tag


def test_nothing_but_its_own_address_may_be_called(tmp_path: Path) -> None:
    with served(RunSource(good_run(tmp_path / "run"))) as server:
        assert server.server_address[0] == "127.0.0.1"
        for path in ("/", "/body", "/style.css", "/live.js"):
            status, text, headers = ask(server, path)
            assert status == 200 and text and "//" not in text.replace("// ", "").lower()
            policy = dict(
                part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";")
            )
            assert policy["default-src"] == "'none'"
            assert {policy[f"{kind}-src"] for kind in ("style", "script", "connect")} == {"'self'"}
            assert headers["X-Content-Type-Options"] == "nosniff"
        assert "style=" not in ask(server, "/body")[1]  # which the policy would refuse


def test_strangers_and_other_paths_are_refused(tmp_path: Path) -> None:
    with served(RunSource(good_run(tmp_path / "run"))) as server:
        status, text, _ = ask(server, "/body", Host="evil.example")
        assert status == 403 and server.url in text and "trials" not in text
        assert ask(server, "/body", Host="localhost:9999")[0] == 200  # a forwarded port
        for path in ("/run.json", "/../run.json", "/store/", "//etc/passwd"):
            assert ask(server, path)[0] == 404
        assert ask(server, "/", "POST")[0] == 501
        status, text, headers = ask(server, "/", "HEAD")
        assert status == 200 and text == "" and int(headers["Content-Length"]) > 1000


def test_a_run_that_goes_away_is_said_and_may_come_back(tmp_path: Path) -> None:
    run = good_run(tmp_path / "run")
    with served(RunSource(run)) as server:
        run.rename(tmp_path / "gone")
        status, text, _ = ask(server, "/body")
        assert status == 503 and "run.json must be readable" in text and "\n" not in text
        (tmp_path / "gone").rename(run)
        assert ask(server, "/body")[0] == 200


def test_what_cannot_be_served_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"run\.json must be readable"):
        Dashboard(RunSource(tmp_path), 0)
    source = RunSource(good_run(tmp_path / "run"))
    with served(source) as server:
        port = server.server_address[1]
        with pytest.raises(DashboardError, match=rf"port {port} of 127\.0\.0\.1 must be free"):
            Dashboard(source, port)


def test_a_run_is_left_alone_for_twenty_times_as_long_as_drawing_took(tmp_path: Path) -> None:
    now = [0.0]

    class Slow(RunSource):
        def report(self) -> Report:
            now[0] += 0.5
            return gather(self.path)

    run = good_run(tmp_path / "run")
    drawing = Drawing(Slow(run), clock=lambda: now[0])
    first = drawing.body()
    append(run, batch(8, 30.0, [20], 1e-4), [measured(8, 20, 1e-4)])
    now[0] = 0.5 + 9.9
    assert drawing.body() == first
    now[0] = 0.5 + 10.1
    assert drawing.body() != first


def test_the_stored_run_is_played_from_its_beginning_to_its_end() -> None:
    assert DEMO.stat().st_size < 200_000
    now, parts = [0.0], stored()
    replay = Replay(parts, secs=60.0, clock=lambda: now[0])
    begun = replay.report()
    assert begun.trials == 0 and not begun.certificate and begun.failures == []
    states, trials = [replay.state()], [0]
    for now[0] in (10.0, 30.0, 50.0):
        states.append(replay.state())
        trials.append(replay.report().trials)
    assert trials == sorted(set(trials)) and len(set(map(str, states))) == len(states)
    assert all(task.chosen == "" for task in replay.report().tasks)
    now[0] = 60.0
    assert replay.report() == assemble(parts)
    assert replay.report().trials > trials[-1] and replay.report().compared["latency"]


def test_a_run_is_stored_without_the_machines_name(tmp_path: Path) -> None:
    parts = stored()
    assert "host" not in parts.head["environment"] and "host" not in parts.certificate
    assert isinstance(parts, Parts) and len(parts.batches) > 10
