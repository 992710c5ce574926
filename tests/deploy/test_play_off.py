"""Of programs that came close alone, the network decides: the rule, and what may go wrong."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tensorese.deploy import play_off as playing
from tensorese.deploy.errors import DeployError
from tensorese.deploy.play_off import PlayOff, choices_of, decide, play_off
from tensorese.records.nouns import Sketch, Workload
from tensorese.records.run_entries import BestProgram

pytestmark = pytest.mark.null

CONV = Workload(operator="conv2d", args=())
STEADY = [1.0, 1.02, 0.99, 1.01, 1.0, 1.3]


def slower(by: float) -> list[float]:
    return [secs * by for secs in STEADY]


def test_a_program_that_is_faster_in_every_round_wins() -> None:
    assert decide({"a": STEADY, "b": STEADY}, [{"a": slower(0.95), "b": slower(1.05)}]) == {"a": 0}


def test_less_than_one_per_cent_is_noise() -> None:
    assert decide({"a": STEADY}, [{"a": slower(0.995)}]) == {}
    assert decide({"a": STEADY}, [{"a": slower(0.985)}]) == {"a": 0}


def test_a_few_lucky_rounds_are_no_win() -> None:
    """The fastest round is well ahead, but two rounds of six are lost."""
    lucky = [0.9, 0.9, 0.9, 0.9, 1.1, 1.4]
    assert decide({"a": STEADY}, [{"a": lucky}]) == {}
    assert decide({"a": STEADY}, [{"a": [0.9, 0.9, 0.9, 0.9, 0.9, 1.4]}]) == {"a": 0}


def test_a_disturbed_round_is_no_loss_of_the_program_that_met_it() -> None:
    """The winner alone was slowed down in all rounds but one; the other is no faster than that."""
    disturbed = [2.0, 1.0, 2.0, 3.0, 2.0, 2.0]
    assert decide({"a": disturbed}, [{"a": [0.995] * 6}]) == {}
    assert decide({"a": disturbed}, [{"a": [0.95] * 6}]) == {"a": 0}


def test_the_fastest_of_several_wins() -> None:
    others = [{"a": slower(0.95), "b": slower(0.9)}, {"a": slower(0.9)}, {"a": slower(0.92)}]
    assert decide({"a": STEADY, "b": STEADY}, others) == {"a": 1, "b": 0}


def test_what_was_hardly_timed_decides_nothing() -> None:
    assert decide({"a": [1.0] * 4}, [{"a": [0.5] * 4}]) == {}
    assert decide({}, [{"a": [0.5] * 6}]) == {} == decide({"a": STEADY}, [{"a": []}])


def program(first: int, *others: BestProgram) -> BestProgram:
    return BestProgram(
        sketch=Sketch(dialect="metaschedule", body="[]", slots=((0, 1),)),
        decisions=(first,),
        tail="",
        latency=1e-5 * first,
        name="conv",
        weight=1,
        flops=1.0,
        others=others,
    )


ALONE, OTHER = program(1, program(2)), program(2)


@dataclass(frozen=True)
class Network:
    """What `play_off` needs of a `Built`: one kernel, whose program may be refused."""

    best: dict[str, BestProgram]
    path: Path = Path()
    refused: tuple[BestProgram, ...] = ()
    built: list[Path] = field(default_factory=list)

    @property
    def run(self) -> Any:
        target = '{"kind": "llvm", "num-cores": 2}'
        return SimpleNamespace(best=self.best, path=self.path, tasks=(), target=target)

    @property
    def applied(self) -> Any:
        return SimpleNamespace(tuned={"kernel": CONV.id}, workloads={CONV.id: CONV})

    def taking(self, best: dict[str, BestProgram]) -> Network:
        if best[CONV.id] in self.refused:
            raise DeployError("made up to be refused")
        return replace(self, best=best)

    def build(self, path: Path) -> Path:
        self.built.append(path)
        return path

    def contender(self, library: Path) -> dict[str, str]:
        return {"library": library.name}


class FakeArena(nullcontext["FakeArena"]):
    """The kernel takes a tenth less time in every library but the first."""

    latency: ClassVar[dict[str, float]]
    round_secs: ClassVar[float]
    error: ClassVar[BaseException | None]

    def __init__(self, *_: Any) -> None:
        super().__init__(self)
        self.systems: dict[str, str] = {}
        self.restarted: list[str] = []

    def add(self, name: str, spec: dict[str, str]) -> None:
        self.systems[name] = spec["library"]

    def swap(self, name: str, spec: dict[str, str]) -> None:
        self.restarted.append(name)
        assert self.systems[name] == spec["library"]

    def drop(self, name: str, _why: str) -> None:
        del self.systems[name]

    def inside(self, name: str, _runs: int) -> Any:
        if self.error is not None:
            raise self.error
        secs = 1.0 if self.systems[name] == "tuned.so" else 0.9
        rows = [("kernel", secs / 2), ("kernel", secs / 2), ("vm.builtin.copy", 9.0)]
        return {"kernels": [{"kernel": kernel, "secs": each} for kernel, each in rows]}

    def time(self, rounds: int, _secs: float) -> Any:
        assert self.restarted == ["alone", "other-0"]
        assert self.systems == {"alone": "tuned.so", "decided": "decided.so"}
        return {name: {"best": secs} for name, secs in self.latency.items()}


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch) -> type[FakeArena]:
    """Nobody waits in it: its clock goes on with every pause."""
    clock = [0.0]
    told = {"latency": {"alone": 1.0, "decided": 0.9}, "error": None, "round_secs": 1.0}
    for name, value in told.items():
        monkeypatch.setattr(FakeArena, name, value, raising=False)
    monkeypatch.setattr(playing, "Arena", FakeArena)
    monkeypatch.setattr(playing, "inputs_of", lambda built: [])

    def sleep(_: float) -> None:
        clock[0] += FakeArena.round_secs

    monkeypatch.setattr(playing, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    return FakeArena


def played(network: Any, allowed: float = 1e9) -> tuple[Any, Path, PlayOff]:
    library, scratch = Path("tuned.so"), Path()
    return play_off(network, library, scratch, lambda _: None, building=1.0, allowed=allowed)


def test_the_library_gets_what_was_faster_in_place(arena: type[FakeArena]) -> None:
    built, library, result = played(Network({CONV.id: ALONE}))
    assert built.run.best == {CONV.id: OTHER} and library.name == "decided.so"
    said = result.to_dict(built)
    row = said["decided"][CONV.id]
    assert said["tasks"] == 1 and said["latency"] == {"alone": 1.0, "decided": 0.9}
    assert (row["program"], row["alone"]) == (OTHER.program(CONV).id, ALONE.program(CONV).id)
    assert row["secs"] == pytest.approx(0.9 * row["alone_secs"]) and row["place"] == 1


def test_a_network_that_is_slower_for_it_stays_as_it_was(arena: type[FakeArena]) -> None:
    arena.latency = {"alone": 1.0, "decided": 1.02}
    built, library, result = played(Network({CONV.id: ALONE}))
    assert built.run.best == {CONV.id: ALONE} and library.name == "tuned.so"
    assert result.to_dict(built)["decided"] == {} and not result.left_out


def test_without_time_nothing_is_built(arena: type[FakeArena]) -> None:
    network: Any = Network({CONV.id: ALONE})
    built, library, result = played(network, allowed=10.0)
    assert built is network and library.name == "tuned.so" and not network.built
    assert "no time" in result.to_dict(built)["left_out"]


def test_a_machine_that_is_too_busy_for_enough_rounds_decides_nothing(
    arena: type[FakeArena],
) -> None:
    arena.round_secs = 20.0
    built, _, result = played(Network({CONV.id: ALONE}))
    assert built.run.best == {CONV.id: ALONE} and "no time" in result.left_out


def test_a_library_that_dies_is_no_reason_not_to_ship(arena: type[FakeArena]) -> None:
    arena.error = DeployError("other-0 died")
    _, library, result = played(Network({CONV.id: ALONE}))
    assert library.name == "tuned.so" and result.left_out == "other-0 died"


def test_another_program_that_fails_is_no_reason_not_to_ship(arena: type[FakeArena]) -> None:
    network = Network({CONV.id: ALONE}, refused=(OTHER,))
    built, library, result = played(network)
    assert built is network and library.name == "tuned.so"
    assert "made up to be refused" in result.left_out


def test_neither_is_an_interrupt(arena: type[FakeArena]) -> None:
    arena.error = KeyboardInterrupt()
    network: Any = Network({CONV.id: ALONE})
    built, library, result = played(network)
    assert built is network and library.name == "tuned.so" and "interrupted" in result.left_out


def test_the_run_keeps_what_was_decided_and_decides_it_once(
    arena: type[FakeArena], tmp_path: Path
) -> None:
    file = tmp_path / "best.json"
    network: Any = Network({CONV.id: ALONE, "elsewhere": program(3)}, path=tmp_path)
    rows = {id_: best.to_dict(CONV) for id_, best in network.best.items()}
    file.write_text(json.dumps(rows))
    left_out = played(network, allowed=10.0)
    left_out[2].keep(left_out[0])
    assert json.loads(file.read_text()) == rows  # another time
    built, _, result = played(network)
    result.keep(built)
    kept = {i: BestProgram.from_dict(row) for i, row in json.loads(file.read_text()).items()}
    assert kept == {CONV.id: OTHER, "elsewhere": program(3)}
    assert choices_of(network) and not choices_of(network.taking(kept))


def test_what_was_found_wrong_afterwards_is_not_told(arena: type[FakeArena]) -> None:
    network: Any = Network({CONV.id: ALONE})
    built, _, result = played(network)
    assert result.to_dict(built)["decided"]
    back = built.taking({CONV.id: result.alone(built)[CONV.id]})
    assert result.to_dict(back)["decided"] == {} and result.alone(back) == {}
