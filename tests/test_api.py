"""`tensorese.tune` on a model that was never a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tensorese
from tensorese.deploy.folder import read_run
from tensorese.records.run_folder import MODEL
from tensorese.workloads import NetworkError, load_network

pytestmark = pytest.mark.tvm


def test_a_program_in_memory_is_kept_in_its_run(tmp_path: Path) -> None:
    model = torch.nn.Linear(32, 16).eval()
    exported = torch.export.export(model, (torch.zeros(4, 32),))
    run = tensorese.tune(exported, trials=4, ranker="none", out=tmp_path / "run", compile=False)
    assert run.state == "finished" and run.trials == 4
    kept = load_network(str(run.path / MODEL))
    assert [given.spec.shape for given in kept.inputs] == [(4, 32)]


class Answer(tuple[torch.Tensor, ...]):
    """An output class of a library's own, which another process does not know."""


torch.utils._pytree.register_pytree_node(
    Answer, lambda answer: (list(answer), None), lambda values, _: Answer(values)
)


class Named(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, 8)

    def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> Answer:
        x = self.words(ids) * scale
        return Answer((x, x.sum(1)))


def test_a_module_is_exported_with_its_inputs_by_name(tmp_path: Path) -> None:
    module = Named().train()
    inputs = {"ids": torch.randint(0, 50, (2, 4)), "scale": torch.randn(2, 4, 8)}
    run = tensorese.tune(
        module, inputs, trials=4, ranker="none", out=tmp_path / "run", compile=False
    )
    assert run.state == "finished" and module.training
    kept = load_network(str(run.path / MODEL))
    assert [one.name for one in kept.inputs] == ["ids", "scale"]
    assert kept.given["ids"].tolist() == inputs["ids"].tolist()
    with torch.no_grad():
        wanted = module(**inputs)
    got = kept.reference([value.numpy() for value in inputs.values()])
    assert [one.shape for one in got] == [(2, 4, 8), (2, 8)]
    assert all((a == b.numpy()).all() for a, b in zip(got, wanted, strict=True))


def test_a_module_without_inputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=r"must come with example inputs, but Named has none"):
        tensorese.tune(Named(), trials=4, out=tmp_path / "run")


def test_what_cannot_be_exported_is_refused_in_a_line(tmp_path: Path) -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if x.sum() > 0 else x

    refused = r"torch.export must be able to take Branching"
    with pytest.raises(NetworkError, match=refused) as caught:
        tensorese.tune(Branching(), torch.randn(3), trials=4, out=tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_inputs_to_verify_on_are_checked_and_kept(tmp_path: Path) -> None:
    exported = torch.export.export(torch.nn.Linear(32, 16).eval(), (torch.zeros(4, 32),))
    out = tmp_path / "run"
    with pytest.raises(NetworkError, match="must be 4x32 float32"):
        tensorese.tune(exported, {"input": np.zeros((4, 31), np.float32)}, trials=4, out=out)
    np.savez(tmp_path / "in.npz", input=np.ones((4, 32), np.float32))
    options = {"trials": 4, "ranker": "none", "out": out, "compile": False}
    run = tensorese.tune(exported, tmp_path / "in.npz", **options)
    assert read_run(run.path).inputs["input"].tolist() == np.ones((4, 32)).tolist()


def test_nothing_is_measured_first_and_measuring_goes_on(tmp_path: Path) -> None:
    model = torch.nn.Linear(32, 16).eval()
    exported = torch.export.export(model, (torch.zeros(4, 32),))
    out = tmp_path / "run"
    run = tensorese.tune(exported, trials=0, out=out, compile=False)
    assert (run.state, run.trials, run.winners) == ("finished", 0, {}) and run.chosen
    assert {best.latency for best in read_run(out).best.values()} == {None}
    run = tensorese.tune(exported, trials=4, ranker="none", out=out, compile=False)
    assert run.trials == 4 and not run.chosen
    assert all(best.latency for best in read_run(out).best.values())


def test_the_same_again_starts_from_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORESE_STORE", str(tmp_path / "store"))
    exported = torch.export.export(torch.nn.Linear(32, 16).eval(), (torch.zeros(4, 32),))
    options = {"trials": 8, "ranker": "none", "compile": False}
    first = tensorese.tune(exported, out=tmp_path / "a", **options)
    again = tensorese.tune(exported, out=tmp_path / "b", **options)
    alone = tensorese.tune(exported, out=tmp_path / "c", reuse=False, **options)
    assert (first.trials, again.trials, alone.trials) == (8, 3, 8)
    (known,) = read_run(again.path).known.values()
    assert known.trials == 8
    assert [one.path for one in known.runs.values()] == [str((tmp_path / "a").resolve())]
    hot = tensorese.tune(exported, out=tmp_path / "d", cache="hot", **options)
    assert hot.trials == 8, "times of other caches do not count"
    unmeasured = tensorese.tune(
        exported, out=tmp_path / "e", trials=0, compile=False, ranker="auto"
    )
    assert set(unmeasured.chosen.values()) == {"known"}
