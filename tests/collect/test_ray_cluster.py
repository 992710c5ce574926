"""Which nodes of a cluster are used, refused, tried again; Ray is made by hand."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tensorese.collect.fleet import ray_cluster
from tensorese.collect.fleet.node import NodeSettings
from tensorese.collect.fleet.ray_cluster import RayCluster, RayConfig, RayNode
from tensorese.errors import MeasureError
from tensorese.targets import Target

pytestmark = pytest.mark.null

FACTS = {
    "host": "h",
    "mcpu": "znver5",
    "cores": 8,
    "arch": "",
    "tensorese": "1",
    "tvm": "0.27",
}
SETTINGS = NodeSettings(target=Target(kind="llvm", mcpu="znver5"), platform="p", run="r")


class FakeError(Exception):
    """Stands for every error of Ray."""


class Actor:
    def __init__(self, ray: FakeRay, options: dict[str, Any], settings: str) -> None:
        self.options, self.settings, self.killed = options, json.loads(settings), False
        self.node = options["scheduling_strategy"]
        self.facts = SimpleNamespace(remote=lambda: ray.facts.get(self.node, FACTS))
        self.exchange = SimpleNamespace(remote=lambda text: {"heard": text})
        self.close = SimpleNamespace(remote=lambda: {"closed": True})
        ray.actors.append(self)


class FakeRay(ModuleType):
    """References are the answers themselves; None is one that never comes."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayError=FakeError)
        self.infos: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}
        self.actors: list[Actor] = []
        self.refusal: Exception | None = None

    def init(self, **options: Any) -> None:
        if self.refusal is not None:
            raise self.refusal

    def nodes(self) -> list[dict[str, Any]]:
        return self.infos

    def remote(self, _: type) -> Any:
        def options(**given: Any) -> Any:
            return SimpleNamespace(remote=lambda settings: Actor(self, given, settings))

        return SimpleNamespace(options=options)

    def wait(self, references: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return [r for r in references if r != "never"], []

    def get(self, reference: Any) -> str:
        if isinstance(reference, Exception):
            raise reference
        return json.dumps(reference)

    def kill(self, actor: Actor) -> None:
        actor.killed = True

    def shutdown(self) -> None: ...


def node(key: str, cpus: float = 8.0, name: str = "", alive: bool = True) -> dict[str, Any]:
    return {
        "NodeID": key,
        "Alive": alive,
        "NodeName": name or "10.0.0.1",
        "NodeManagerAddress": "10.0.0.1",
        "NodeManagerHostname": "machine",
        "Resources": {"CPU": cpus} if cpus else {},
    }


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    made = FakeRay()
    strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda key, soft: key)
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)  # type: ignore[arg-type]
    monkeypatch.setattr(ray_cluster, "facts_here", lambda kind: {**FACTS, "host": "driver"})
    monkeypatch.setattr(ray_cluster, "_LOOK_SECS", 0.0)
    return made


def cluster(lines: list[str] | None = None, settings: NodeSettings = SETTINGS) -> RayCluster:
    say = (lines if lines is not None else []).append
    return RayCluster(RayConfig(address="auto"), settings, planners=3, say=say)


def names(made: RayCluster) -> list[str]:
    return [node.name for node in made.joined()]


def test_every_node_with_cpus_gets_one_actor_that_takes_all_of_them(ray: FakeRay) -> None:
    ray.infos = [node("head", cpus=0), node("n1aaaaaaa"), node("n2bbbbbbb"), node("n3", name="c")]
    ray.infos.append(node("n4", alive=False))
    made = cluster()
    assert names(made) == ["machine", "machine-n2bbbb", "c"]
    assert names(made) == [] and len(ray.actors) == 3
    assert [a.node for a in ray.actors] == ["n1aaaaaaa", "n2bbbbbbb", "n3"]
    assert all(a.options["num_cpus"] == 8.0 for a in ray.actors)
    assert all(a.options["num_gpus"] == 0 and a.settings["cores"] == 8 for a in ray.actors)
    assert all(n.window == 48 and n.beside == 0 for n in made.ready.values())
    ray.infos.append(node("n5", name="late"))
    assert names(made) == ["late"]


def test_a_gpu_target_takes_one_gpu_and_the_drivers_host_knows_its_planners(ray: FakeRay) -> None:
    ray.infos = [node("n1")]
    ray.facts = {"n1": {**FACTS, "host": "driver", "arch": "sm_90"}}
    target = Target(kind="cuda", arch="sm_90")
    made = cluster(settings=NodeSettings(target=target, platform="p", run="r"))
    assert names(made) == ["machine"]
    assert ray.actors[0].options["num_gpus"] == 1
    assert made.ready["n1"].beside == 3


def test_another_kind_is_refused_by_name_once(ray: FakeRay) -> None:
    ray.infos = [node("n1", name="old")]
    ray.facts = {"n1": {**FACTS, "mcpu": "skylake"}}
    lines: list[str] = []
    made = cluster(lines)
    assert names(made) == names(made) == []
    assert lines == ["node old is refused: its CPU is skylake, the target's is znver5"]
    assert len(ray.actors) == 1 and ray.actors[0].killed
    assert made.absence().startswith("old was refused: its CPU is skylake")


def test_a_lost_node_is_tried_again_later_and_not_for_ever(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.infos = [node("n1", name="shaky")]
    lines: list[str] = []
    made = cluster(lines)
    (first,) = made.joined()
    made.lost(first, "killed")
    assert made.joined() == [] and ray.actors[0].killed  # too early
    monkeypatch.setattr(ray_cluster, "_RETURN_SECS", -1.0)
    (second,) = made.joined()
    assert second is not first and second.name == "shaky"
    ray.facts = {"n1": FakeError("actor died")}
    made.lost(second, "killed")
    for _ in range(5):
        assert made.joined() == []
    assert len(ray.actors) == 4 and not made.ready
    assert "shaky was refused: it was lost 4 times" in made.absence()


def test_answers_come_once_and_deaths_are_told_in_words(ray: FakeRay) -> None:
    ray.infos = [node("n1")]
    made = cluster()
    (one,) = made.joined()
    assert isinstance(one, RayNode)
    one.call("hello")
    assert one.answer() == '{"heard": "hello"}'
    assert one.reference is None  # nothing to wait for
    one.reference = "never"
    assert one.answer() is None
    one.reference = FakeError("pages of text")
    with pytest.raises(ray_cluster.NodeLost, match=r"its process is gone \(FakeError\)"):
        one.answer()
    failed = FakeError("pages of text")
    failed.cause = MeasureError("the farm's\nforeman died")  # type: ignore[attr-defined]
    one.reference = failed
    with pytest.raises(ray_cluster.NodeLost, match="MeasureError: the farm's foreman died"):
        one.answer()


def test_nobody_and_a_cluster_that_does_not_let_us_in_are_told(ray: FakeRay) -> None:
    assert "none offers CPUs; start one with `ray start" in cluster().absence()
    ray.infos = [node("n1", name="busy")]
    ray.facts = {"n1": "never"}
    made = cluster()
    assert made.joined() == [] and "busy is still starting" in made.absence()
    made.close()
    assert ray.actors[-1].killed
    ray.refusal = ConnectionError("Could not find\nany running Ray instance.")
    with pytest.raises(MeasureError, match=r"any running Ray instance\.; run `ray start"):
        cluster()
