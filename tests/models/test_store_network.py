"""What every network of lowered programs keeps, whoever its batch-mates are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from models_support import MAKERS

from tensorese.features.lowered import COLUMNS, Ragged
from tensorese.features.programs import ProgramSet
from tensorese.models import store_network
from tensorese.models.base import LOWEST, kinds, model_class
from tensorese.models.store_network import StoreBatch, StoreModel, blocks

pytestmark = pytest.mark.null

KINDS = [kind for kind in kinds() if issubclass(model_class(kind), StoreModel)]
READ_IN_ORDER = {"lstm"}
every = pytest.mark.parametrize("kind", KINDS)


def _model(kind: str, toy: ProgramSet) -> StoreModel:
    model = MAKERS[kind](toy.spec(), toy.machine, ("fast", "slow"))
    assert isinstance(model, StoreModel)
    return model


def _ragged(toy: ProgramSet) -> Ragged:
    assert toy.lowered is not None
    return toy.lowered


def test_the_suite_has_kinds() -> None:
    assert "tenset-mlp" in KINDS


@every
def test_a_score_does_not_depend_on_batch_mates_or_padding(
    kind: str, toy: ProgramSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ragged = _model(kind, toy), _ragged(toy)
    together = model.rank(ragged, "slow")
    monkeypatch.setattr(store_network, "BLOCK_ROWS", 1)  # every program in a block of its own
    alone = model.rank(ragged, "slow")
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-5)
    whole = model.network(StoreBatch.of(ragged))[:, 1, 0].detach().numpy()  # much padding
    has = ragged.counts > 0
    np.testing.assert_allclose(whole[has], together[has], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in READ_IN_ORDER])
def test_stores_may_come_in_any_order(kind: str, toy: ProgramSet) -> None:
    model, ragged = _model(kind, toy), _ragged(toy)
    order = np.lexsort((-np.arange(len(ragged.values)), ragged.owner))
    turned = replace(ragged, values=ragged.values[order])
    assert not np.array_equal(turned.values, ragged.values)
    np.testing.assert_allclose(
        model.rank(turned, "fast"), model.rank(ragged, "fast"), rtol=1e-4, atol=1e-5
    )


@every
def test_a_program_without_rows_comes_last(kind: str, toy: ProgramSet) -> None:
    model, ragged = _model(kind, toy), _ragged(toy)
    none = ragged.counts == 0
    assert none.any()
    scores = model.rank(ragged, "fast")
    assert (scores[none] == LOWEST).all() and (scores[~none] > LOWEST).all()


@every
def test_heads_differ_and_have_a_part_of_their_own(kind: str, toy: ProgramSet) -> None:
    model, ragged = _model(kind, toy), _ragged(toy)
    assert not np.allclose(model.rank(ragged, "fast"), model.rank(ragged, "slow"))
    parts = model.network.parts()
    assert {"encoder", "head"} <= set(parts)
    assert sum(len(each) for each in parts.values()) == len(list(model.network.parameters()))
    model.network.zero_grad()
    model.network(StoreBatch.of(ragged))[:, 0, 0].sum().backward()
    for name, parameters in parts.items():
        assert any(p.grad is not None and bool(p.grad.any()) for p in parameters), name


@every
def test_the_gradient_is_finite_beside_programs_without_rows(kind: str, toy: ProgramSet) -> None:
    model, ragged = _model(kind, toy), _ragged(toy)
    few = ragged.take(np.flatnonzero(ragged.counts == 0)[:1])
    model.network.train()
    model.network(StoreBatch.of(few)).sum().backward()
    grads = [p.grad for p in model.network.parameters() if p.grad is not None]
    assert grads and all(bool(torch.isfinite(grad).all()) for grad in grads)


def test_columns_are_standardised_and_constant_ones_are_nothing(toy: ProgramSet) -> None:
    model, ragged = _model("tenset-mlp", toy), _ragged(toy)
    model.network.fit_columns(ragged)
    centre, scale = (
        model.network.get_buffer(f"rows_{name}").numpy() for name in ("centre", "scale")
    )
    varied = scale > 0
    assert 0 < varied.sum() < COLUMNS and not ragged.values[:, ~varied].std(0).any()
    standard = (ragged.values - centre) * scale
    np.testing.assert_allclose(standard[:, varied].std(0), 1.0, atol=1e-3)
    np.testing.assert_allclose(standard.mean(0), 0.0, atol=1e-4)
    elsewhere = replace(ragged, values=ragged.values.copy())
    elsewhere.values[:, ~varied] = 1e6  # what never varied in training cannot move a score
    np.testing.assert_array_equal(model.rank(elsewhere, "fast"), model.rank(ragged, "fast"))


def test_blocks_hold_every_program_with_rows_once_and_little_padding() -> None:
    counts = np.random.default_rng(0).integers(0, 40, 5000)
    parts = list(blocks(counts))
    together = np.concatenate(parts)
    np.testing.assert_array_equal(np.sort(together), np.flatnonzero(counts))
    padded = sum(len(part) * int(counts[part].max()) for part in parts)
    assert padded < 1.2 * counts.sum()
    assert all(len(part) * int(counts[part].max()) <= store_network.BLOCK_ROWS for part in parts)


@every
def test_a_program_that_fills_a_group_up_counts_once(kind: str, toy: ProgramSet) -> None:
    """The same score wherever it stands, and the same statistics of norms."""
    ragged = _ragged(toy)
    few = ragged.take(np.flatnonzero(ragged.counts > 1)[:6])
    once, filled = StoreBatch.of(few), torch.tensor([0, 1, 2, 0, 3, 0, 0, 4, 5, 0])
    networks = [_model(kind, toy).network.train() for _ in range(2)]
    torch.manual_seed(1)
    wanted = networks[0](once)
    torch.manual_seed(1)
    scores = networks[1](once.select(filled))
    torch.testing.assert_close(scores, wanted[filled])
    for one, other in zip(*(network.buffers() for network in networks), strict=True):
        torch.testing.assert_close(one, other)


@every
def test_frozen_parts_do_not_move_in_training(kind: str, toy: ProgramSet) -> None:
    network, few = _model(kind, toy).network, _ragged(toy).take(np.arange(40))
    rest = [name for name in network.parts() if name != "head"]
    network.freeze(rest)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, weight_decay=0.1)
    network.train()(StoreBatch.of(few))[..., 0].square().mean().backward()
    optimizer.step()
    moved = {name for name, t in network.state_dict().items() if not torch.equal(t, before[name])}
    assert moved and all(name.startswith("body.head.") for name in moved)
    network.freeze(())
    assert all(parameter.requires_grad for parameter in network.parameters())


@every
def test_heads_of_a_model_that_goes_on(kind: str, toy: ProgramSet) -> None:
    model, ragged = _model(kind, toy), _ragged(toy)
    went_on = model.going_on(model.config, {"new": "slow", "fast": "fast", "newer": "slow"})
    assert went_on.platforms == ("new", "fast", "newer") and model.platforms == ("fast", "slow")
    for name, old in (("new", "slow"), ("fast", "fast"), ("newer", "slow")):
        np.testing.assert_array_equal(went_on.rank(ragged, name), model.rank(ragged, old))
