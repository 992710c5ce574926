"""The chaos notices what it is there for; what it finds in the program is `make test-chaos`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kills import Ledger
from measurements_support import MeasurementMaker
from mutations import damaged_bytes, damaged_json
from outcome import Outcome, table
from readers import READERS, Damaged, Reader, Wrong
from reading import attempt, attempts_at
from tensorese.errors import StoreError
from tensorese.records.store import Store

pytestmark = pytest.mark.null


def _reader(read: Any) -> Reader:
    def prepare(folder: Path) -> None:
        (folder / "file").write_text("whole")

    return Reader(share=1, prepare=prepare, read=read, damages=lambda name: (damaged_bytes,))


def _raises(error: BaseException) -> Any:
    def read(folder: Path, damaged: Damaged) -> None:
        if damaged.file:
            raise error

    return read


def _takes(megabytes: int) -> Any:
    def read(folder: Path, damaged: Damaged) -> None:
        bytearray(megabytes << 20)

    return read


@pytest.mark.parametrize(
    ("read", "column"),
    [
        (_raises(StoreError("one line")), ""),
        (_raises(StoreError("two\nlines")), "tracebacks"),
        (_raises(KeyError("latency")), "tracebacks"),
        (_raises(Wrong("another value")), "lost"),
        (_takes(1500), "tracebacks"),
        (_takes(1), ""),
    ],
)
def test_an_attempt_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any, column: str
) -> None:
    monkeypatch.setitem(READERS, "made up", _reader(read))
    READERS["made up"].prepare(tmp_path)
    assert attempt("made up", tmp_path, random.Random(0))[0] == column


def test_a_worker_reads_damaged_stores_and_logs() -> None:
    for name, count in (("store", 40), ("Ansor log", 100)):
        outcome = attempts_at(name, count, seed=1)
        assert outcome.clean and outcome.attempts == count, outcome.notes


def test_every_mutation_is_repeatable_and_changes_something() -> None:
    whole = b'{"a": [1, 2, {"b": "text"}], "c": null}'
    for damage in (damaged_bytes, damaged_json):
        made = [[damage(whole, random.Random(k)) for k in range(100)] for _ in range(2)]
        assert made[0] == made[1] and sum(one != whole for one in made[0]) > 90


def test_a_ledger_counts_what_is_gone_and_what_is_there_twice(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    outcome, ledger = Outcome(name="kills"), Ledger(tmp_path)
    with Store.open(tmp_path, create=True) as store:
        store.append(make_measurement())
    assert ledger.check(outcome, "a start", acknowledged=1)
    assert not ledger.check(outcome, "a batch", acknowledged=3) and outcome.lost == 2
    with Store.open(tmp_path, create=True) as store:
        store.append(make_measurement())
    assert not ledger.check(outcome, "a batch") and outcome.repeated == 1
    for path in tmp_path.glob("journal-*"):
        path.unlink()
    assert not ledger.check(outcome, "a batch") and outcome.lost == 4
    assert not outcome.clean and "all" in table([outcome])


@pytest.mark.slow
@pytest.mark.tvm
def test_kills_find_nothing(tmp_path: Path) -> None:
    from kills import killed_collecting, killed_tuning

    for outcome in (killed_tuning(2, seed=1), killed_collecting(2, seed=1)):
        assert outcome.clean and outcome.attempts == 2, outcome.notes
