"""A node's side of the talk, and which nodes are let in; the farm is made by hand."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorese.collect.farm import Layout
from tensorese.collect.fleet.check import mismatch
from tensorese.collect.fleet.node import NodeSettings, NodeWorker
from tensorese.collect.fleet.wire import Order, errand, results_of
from tensorese.measure.base import FINALIST, Candidate, Measurer, Ticket
from tensorese.measure.config import FarmConfig
from tensorese.measure.timing import TimingConfig
from tensorese.records.nouns import Measurement, Platform, Status
from tensorese.records.store import Store
from tensorese.targets import Target
from test_handout import orders

pytestmark = pytest.mark.null

SETTINGS = NodeSettings(
    target=Target(kind="llvm"),
    platform="p",
    run="r",
    farm=FarmConfig(verify="none", timing=TimingConfig(min_samples=3)),
    layout=Layout(phases=False),
    cores=2,
)


class InstantFarm(Measurer):
    def __init__(self, store: Store) -> None:
        self.journal = store
        self.best: dict[str, float] = {}
        self.batches: list[int] = []

    def submit(self, candidates: Sequence[Candidate]) -> Ticket:
        self.batches.append(len(candidates))
        ticket = Ticket(len(candidates))
        for index, candidate in enumerate(candidates):
            measurement = Measurement(
                program=candidate.program,
                platform=Platform(name="p"),
                status=Status.OK,
                run_secs=(1e-3,),
                origin=candidate.origin,
            )
            self.journal.append(measurement)
            ticket.put((index, measurement))
        return ticket

    def know_best(self, latencies: Mapping[str, float]) -> None:
        self.best.update(latencies)

    def cancel(self) -> None: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


class Worker(NodeWorker):
    def _make_farm(self, store: Store) -> Measurer:
        return InstantFarm(store)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def ask(worker: NodeWorker, rows: list[Order], known: set[str], acks: Sequence[int] = ()) -> Any:
    best = {rows[0].program.workload.id: 0.5} if rows else {}
    batches = [rows] if rows else []
    text = errand(batches, known=known, acks=acks, best=best, wait=0.1)
    return results_of(worker.exchange(text))


def test_settings_travel_as_json() -> None:
    assert NodeSettings.from_json(SETTINGS.to_json()) == SETTINGS


def test_results_are_told_until_they_are_acknowledged() -> None:
    worker, known = Worker(SETTINGS.to_json()), set[str]()
    first = ask(worker, orders(3)[0], known)
    assert sorted(job for job, _ in first) == [0, 1, 2]
    assert sorted(job for job, _ in ask(worker, [], known)) == [0, 1, 2]
    assert [job for job, _ in ask(worker, [], known, acks=[0, 2])] == [1]
    assert ask(worker, [], known, acks=[1]) == []
    farm = worker._farm
    assert isinstance(farm, InstantFarm) and farm.batches == [3]  # a batch stays together
    assert list(farm.best.values()) == [0.5]


def test_a_killed_drivers_results_are_there_for_the_next_one() -> None:
    killed = Worker(SETTINGS.to_json())
    before = dict(ask(killed, orders(3)[0], set()))
    after = Worker(SETTINGS.to_json())
    rows, _ = orders(5)
    found = dict(ask(after, rows, set()))
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert [found[job]["id"] for job in range(3)] == [before[job]["id"] for job in range(3)]
    assert after._farm.batches == [2]  # type: ignore[union-attr]
    other = Worker(NodeSettings.from_json(SETTINGS.to_json().replace('"r"', '"s"')).to_json())
    assert dict(ask(other, rows, set()))[0]["id"] != before[0]["id"]


def test_a_finalist_is_timed_anew_whatever_is_known() -> None:
    rows, _ = orders(1)
    final = [Order(1, 1, replace(rows[0].candidate, origin=FINALIST), rows[0].ticket)]
    killed = Worker(SETTINGS.to_json())
    told = [dict(ask(killed, one, set())) for one in (rows, final)]
    after = Worker(SETTINGS.to_json())
    turn = dict(ask(after, final, set()))
    assert turn[1]["id"] != told[1][1]["id"] and turn[1]["id"] != told[0][0]["id"]
    assert dict(ask(after, rows, set()))[0]["id"] == told[0][0]["id"], "not the finalist's"


def test_the_end_of_a_run_leaves_nothing_behind() -> None:
    worker = Worker(SETTINGS.to_json())
    ask(worker, orders(2)[0], set())
    assert SETTINGS.folder.is_dir()
    worker.close()
    worker.close()
    assert not SETTINGS.folder.exists()


HERE = {"tensorese": "1", "tvm": "0.27", "mcpu": "znver5", "cores": 16, "arch": "sm_90"}


@pytest.mark.parametrize(
    ("target", "facts", "said"),
    [
        ({"kind": "llvm", "mcpu": "znver5", "num-cores": 16}, {}, ""),
        ({"kind": "llvm", "num-cores": 2}, {}, ""),
        ({"kind": "llvm", "mcpu": "skylake"}, {}, "its CPU is znver5, the target's is skylake"),
        ({"kind": "llvm", "num-cores": 32}, {}, "it lends 16 cores, the target has 32"),
        ({"kind": "llvm"}, {"tvm": "0.28"}, "it has tvm 0.28, the driver 0.27"),
        ({"kind": "cuda", "arch": "sm_90"}, {}, ""),
        ({"kind": "cuda", "arch": "sm_90"}, {"arch": ""}, "its GPU is missing"),
        ({"kind": "cuda", "arch": "sm_80"}, {}, "its GPU is sm_90, the target's is sm_80"),
    ],
)
def test_a_node_of_another_kind_is_refused(
    target: dict[str, Any], facts: dict[str, Any], said: str
) -> None:
    why = mismatch(Target.from_dict(target), {**HERE, **facts}, HERE)
    assert why.startswith(said) and bool(why) == bool(said)
