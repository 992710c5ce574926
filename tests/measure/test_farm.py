"""The farm under real candidates and real faults: processes that die, hang, eat memory, lie."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import farm_support as programs
from tensorese.errors import MeasureError
from tensorese.identity import workload_of
from tensorese.measure.base import failure_summary, require_success
from tensorese.measure.candidates import from_module, from_schedule
from tensorese.measure.config import FarmConfig
from tensorese.measure.farm import Farm
from tensorese.measure.timing import TimingConfig
from tensorese.records.nouns import Measurement, Status
from tensorese.targets import Target

pytestmark = pytest.mark.tvm


def farm(calm_secs: float = 0.0, **settings: object) -> Farm:
    """A farm that does not wait for a calm machine unless it is asked to."""
    config = FarmConfig(calm_secs=calm_secs, **settings)  # type: ignore[arg-type]
    return Farm(programs.host_target(), config)


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Measurement]:
    """One farm, every kind of bad candidate between good ones, everything verified."""
    good = programs.good()
    batch = {
        "good 1": good[0],
        "segfaults": programs.segfaults(),
        "aborts": programs.aborts(),
        "hangs": programs.hangs(),
        "eats memory": programs.eats_memory(),
        "wrong": programs.wrong(),
        "does not build": programs.does_not_build(),
        "crawls": programs.crawls_in_llvm(),
        "good 2": good[1],
    }
    with farm(verify="all", build_timeout=3.0, run_timeout=3.0, memory_gib=0.75) as measurer:
        return dict(zip(batch, measurer.measure(list(batch.values())), strict=True))


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("good 1", Status.OK, ""),
        ("segfaults", Status.RUN_ERROR, "SIGSEGV"),
        ("aborts", Status.RUN_ERROR, "SIGABRT"),
        ("hangs", Status.RUN_TIMEOUT, "limit of 3 s"),
        ("eats memory", Status.RUN_ERROR, "died of"),
        ("wrong", Status.WRONG_OUTPUT, "elements differ"),
        ("does not build", Status.BUILD_ERROR, ""),
        ("crawls", Status.BUILD_TIMEOUT, "limit of 3 s"),
        ("good 2", Status.OK, ""),
    ],
)
def test_each_candidate_ends_as_what_it_is(
    verdicts: dict[str, Measurement], name: str, status: Status, text: str
) -> None:
    assert verdicts[name].status is status, verdicts[name].error
    assert text in verdicts[name].error
    assert (verdicts[name].latency > 0) == (status is Status.OK)


def test_a_measurement_says_how_it_was_made(verdicts: dict[str, Measurement]) -> None:
    measured = verdicts["good 1"]
    assert measured.origin == "random"
    assert measured.timing["threads"] == len(os.sched_getaffinity(0))
    assert measured.timing["cache"] == "hot"
    assert measured.timing["co_runners"] == 0
    assert measured.toolchain["tvm"].startswith("0.27")
    assert measured.build_secs > 0
    assert measured.verification["passed"]
    assert measured.verification["reference"] == "numpy"
    # One that has clearly lost is timed no further; a busy host may leave one calm sample.
    assert len(measured.run_secs) + len(measured.timing.get("disturbed", ())) >= 2


def test_a_run_in_which_everything_fails_says_so() -> None:
    with farm() as measurer:
        results = measurer.measure([programs.does_not_build(), programs.segfaults()])
    with pytest.raises(MeasureError, match="all failed: 1 "):
        require_success(results)
    assert failure_summary([]) == ""


def test_only_what_becomes_the_best_is_verified_by_default() -> None:
    with farm(build_workers=1, calm_secs=FarmConfig().calm_secs) as measurer:
        results = measurer.measure([*programs.good(), *programs.good()])
    best = min(results, key=lambda m: m.latency)
    assert best.verification["passed"]
    assert sum(bool(m.verification) for m in results) < len(results)


def test_relayouted_weights_are_not_called_wrong() -> None:
    tvm = programs.tvm
    module = programs.matmul()
    func = module["main"].with_attr("layout_free_buffers", [1])
    module = tvm.IRModule({"main": func})
    schedule = tvm.s_tir.Schedule(module)
    block = schedule.get_sblock("c")
    _, j, r = schedule.get_loops(block)
    schedule.split(j, [None, 16])
    schedule.split(r, [None, 4])
    schedule.enter_postproc()
    rewrite = tvm.s_tir.meta_schedule.postproc.RewriteLayout()
    assert rewrite.apply(schedule)
    candidate = from_schedule(schedule, workload_of(module))
    with farm(verify="all") as measurer:
        (result,) = measurer.measure([candidate])
    assert "layout_rewrite_preproc" in candidate.module
    assert result.status is Status.OK
    assert result.verification["passed"]


def test_a_program_is_replayed_from_its_trace_when_no_module_is_sent() -> None:
    (whole, *_) = programs.good()
    bare = type(whole)(program=whole.program, origin="random")
    with farm(verify="all") as measurer:
        (result,) = measurer.measure([bare])
    assert result.status is Status.OK, result.error


def test_fixed_timing_is_what_was_asked_for() -> None:
    timing = TimingConfig(number=3, repeat=2, min_repeat_ms=5)
    with farm(timing=timing, verify="none") as measurer:
        (result,) = measurer.measure(programs.good()[:1])
    assert len(result.run_secs) == 2
    assert not result.timing["adaptive"]


def test_results_of_one_submit_arrive_while_the_caller_goes_on() -> None:
    with farm() as measurer:
        ticket = measurer.submit(programs.good())
        started = time.monotonic()
        first = ticket.poll()
        assert time.monotonic() - started < 0.5
        rest = dict(ticket)
    assert len(first) + len(rest) == len(programs.good())


# -- killed processes ----------------------------------------------------------------------


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(after_name[1]) == pid and after_name[0] != "Z":
            found.append(int(stat.parent.name))
    return sorted(found)


def foreman_pid() -> int:
    for pid in children_of(os.getpid()):
        if b"tensorese.measure.foreman" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError("no foreman")


def kill_while_measuring(measurer: Farm, victim: Callable[[], int]) -> list[Measurement]:
    """Measures a batch that takes seconds while `victim` is killed in the middle of it."""
    slow = [programs.crawls_in_llvm() for _ in range(2)]
    ticket = measurer.submit([*slow, *programs.good()])
    killer = threading.Thread(target=_kill_a_second_into_the_work, args=(victim,))
    killer.start()
    results = dict(ticket)
    killer.join()
    return [results[i] for i in range(len(results))]


def _kill_a_second_into_the_work(victim: Callable[[], int]) -> None:
    while len(children_of(foreman_pid())) < 2:
        time.sleep(0.05)
    time.sleep(1.0)
    os.kill(victim(), signal.SIGKILL)


@pytest.mark.parametrize("which", ["build worker", "runner", "foreman"])
def test_a_killed_process_costs_time_but_no_candidate(which: str) -> None:
    def victim() -> int:
        foreman = foreman_pid()
        # The foreman forks the build workers first, the runner last.
        workers = children_of(foreman)
        return {"build worker": workers[0], "runner": workers[-1], "foreman": foreman}[which]

    with farm(build_timeout=3.0, retries=2) as measurer:
        results = kill_while_measuring(measurer, victim)
    statuses = [m.status for m in results]
    assert statuses[2:] == [Status.OK] * len(programs.good()), failure_summary(results)
    assert set(statuses[:2]) == {Status.BUILD_TIMEOUT}


def test_a_worker_killed_again_and_again_is_an_infra_error_without_a_label() -> None:
    stop = threading.Event()

    def kill_builders() -> None:
        while not stop.wait(0.4):
            for pid in children_of(foreman_pid()):
                stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                if int(stat[11]) > 20:  # clock ticks of CPU: this one is compiling
                    os.kill(pid, signal.SIGKILL)

    with farm(retries=1, build_workers=1, build_timeout=20.0) as measurer:
        killer = threading.Thread(target=kill_builders)
        ticket = measurer.submit([programs.crawls_in_llvm()])
        killer.start()
        ((_, result),) = list(ticket)
        stop.set()
        killer.join()
    assert result.status is Status.INFRA_ERROR
    assert "(2 times)" in result.error
    assert result.run_secs == ()


def test_the_runner_is_back_within_two_seconds_of_a_crash() -> None:
    with farm(verify="none") as measurer:
        measurer.measure(programs.good()[:1])
        arrivals: list[float] = []
        for _ in measurer.submit([programs.segfaults(), *programs.good()]):
            arrivals.append(time.monotonic())
    gaps = [b - a for a, b in itertools.pairwise(arrivals)]
    assert statistics.median(gaps) < 2.0


def test_closing_leaves_no_process_and_no_folder_behind() -> None:
    measurer = farm()
    measurer.measure(programs.good()[:1])
    foreman = foreman_pid()
    scratch = measurer._director.crew.scratch
    workers = children_of(foreman)
    assert len(workers) >= 2
    measurer.close()
    measurer.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in [foreman, *workers])
    assert not scratch.exists()


def test_a_grown_worker_is_replaced() -> None:
    with farm(recycle_mib=0.5, build_workers=1) as measurer:
        measurer.measure(programs.good()[:1])
        before = set(children_of(foreman_pid()))
        measurer.measure([*programs.good(n=96), *programs.good(n=128)])
        after = set(children_of(foreman_pid()))
    assert before != after


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert not [
        pid
        for pid in children_of(os.getpid())
        if b"tensorese.measure.foreman" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_a_sentinel_that_is_always_due_still_lets_candidates_run() -> None:
    with farm(sentinel_secs=1e-6, verify="none") as measurer:
        results = measurer.measure(programs.good())
    assert {m.status for m in results} == {Status.OK}
    assert all(m.timing["drift"] > 0 for m in results)


def test_lanes_time_side_by_side_on_their_own_cores() -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two cores")
    target = Target(kind="llvm", cores=1)
    with Farm(target, FarmConfig(lanes=2, verify="all")) as measurer:
        results = measurer.measure([*programs.good(), *programs.good(n=96)])
    assert {m.status for m in results} == {Status.OK}
    assert {tuple(m.timing["cores"]) for m in results} == {(cores[0],), (cores[1],)}
    assert {m.timing["threads"] for m in results} == {1}


def test_what_a_killed_candidate_started_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child in a session of its own is in no group that the worker's end would kill."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("TENSORESE_TEST_MARK", mark)
    call = programs.extern  # arguments are computed first: it forks, then leaves, then waits
    forks = programs.elementwise(lambda i: call("pause", call("setsid", call("fork"))), 1)
    with farm(run_timeout=1.5, verify="none", build_workers=1, sentinel_secs=0.0) as measurer:
        (result,) = measurer.measure([from_module(forks, origin="random")])
        assert result.status is Status.RUN_TIMEOUT
        foreman = measurer._director.crew.foreman.pid
        deadline = time.monotonic() + 5
        while (left := strangers(mark, foreman)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left


def strangers(mark: str, foreman: int) -> list[int]:
    """Marked processes that lead a session, but for the foreman."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        pid = int(environ.parent.name)
        try:
            marked = f"TENSORESE_TEST_MARK={mark}".encode() in environ.read_bytes()
            if marked and pid != foreman and os.getsid(pid) == pid:
                found.append(pid)
        except OSError:
            continue
    return found
