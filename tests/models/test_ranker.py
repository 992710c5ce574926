from __future__ import annotations

import numpy as np
import pytest
import torch

from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.predict import as_batch, predict
from tensorese.models.ranker import TLPRanker, bf16_is_faster, encoded_values
from tensorese.models.tlp import TLP, ModelError, TLPConfig, lots
from tensorese.models.tree_votes import TreeVotes
from tensorese.models.trees import LEAF, Forest
from tensorese.models.trunk import TrunkConfig
from tensorese.search.contracts import Ranker

pytestmark = pytest.mark.null


def _model(toy: ProgramSet) -> TLP:
    torch.manual_seed(0)
    return TLP(TLPConfig(trunk=TrunkConfig(width=32), spec=toy.spec()), ("fast",))


def test_one_sketch_scores_like_a_mixed_batch(toy: ProgramSet) -> None:
    model = _model(toy)
    batch = as_batch(encode_programs(toy, Encoder(model.config.spec)))
    ranker = TLPRanker(model, bf16=False)
    for k in (0, len(toy.pairs) - 1):
        pair, members = toy.pairs[k], toy.members[k]
        workload = toy.workloads[pair.workload]
        got = ranker.score(workload, "fast", pair.sketch, toy.decisions[k])
        want = predict(model, batch, torch.from_numpy(members))[:, 0].numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not bf16_is_faster(torch.device("cpu")), reason="no usable bf16 units here")
def test_bf16_keeps_the_order_of_clear_cases(toy: ProgramSet) -> None:
    pair, workload = toy.pairs[0], toy.workloads[toy.pairs[0].workload]
    exact = TLPRanker(_model(toy), bf16=False).score(
        workload, "fast", pair.sketch, toy.decisions[0]
    )
    rough = TLPRanker(_model(toy), bf16=True).score(workload, "fast", pair.sketch, toy.decisions[0])
    assert np.corrcoef(exact, rough)[0, 1] > 0.97


def test_no_decisions_no_scores(toy: ProgramSet) -> None:
    pair = toy.pairs[0]
    empty = np.zeros((0, pair.sketch.n_decisions), dtype=np.int64)
    ranker = TLPRanker(_model(toy))
    assert len(ranker.score(toy.workloads[pair.workload], "fast", pair.sketch, empty)) == 0


def test_unknown_platform(toy: ProgramSet) -> None:
    pair = toy.pairs[0]
    with pytest.raises(ModelError, match="did you mean"):
        TLPRanker(_model(toy)).score(
            toy.workloads[pair.workload], "fats", pair.sketch, toy.decisions[0]
        )


def test_is_a_ranker_of_the_search(toy: ProgramSet) -> None:
    model = _model(toy)
    ranker: Ranker = TLPRanker(model)
    assert ranker.needs == "decisions"
    assert ranker.name.startswith("tlp:")
    assert ranker.name == TLPRanker(_model(toy)).name
    pair, workload = toy.pairs[0], toy.workloads[toy.pairs[0].workload]
    before = ranker.score(workload, "fast", pair.sketch, toy.decisions[0])
    ranker.update([])
    np.testing.assert_array_equal(
        before, ranker.score(workload, "fast", pair.sketch, toy.decisions[0])
    )
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    assert TLPRanker(model).name != ranker.name


def test_lots_are_drawn_by_the_program_alone(toy: ProgramSet) -> None:
    values = torch.from_numpy(encode_programs(toy, Encoder(toy.spec())).values)
    drawn = lots(values)
    padded = torch.nn.functional.pad(values, (0, 7))
    torch.testing.assert_close(lots(padded), drawn)
    torch.testing.assert_close(lots(values[5:9]), drawn[5:9])
    assert abs(float(drawn.mean()) - 0.577) < 0.3 and 0.9 < float(drawn.std()) < 1.7  # Gumbel
    assert len(drawn.unique()) > 0.99 * len(values.unique(dim=0))


def test_a_shaken_model_scores_alike_by_both_ways(toy: ProgramSet) -> None:
    config = TLPConfig(trunk=TrunkConfig(width=32), spec=toy.spec(), jitter=0.5)
    torch.manual_seed(0)
    model, still = TLP(config, ("fast",)), _model(toy)
    pair, workload = toy.pairs[0], toy.workloads[toy.pairs[0].workload]
    asked = (workload, "fast", pair.sketch, toy.decisions[0])
    got = TLPRanker(model, bf16=False).score(*asked)
    batch = as_batch(encode_programs(toy, Encoder(config.spec)))
    want = predict(model, batch, torch.from_numpy(toy.members[0]))[:, 0].numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert np.abs(got - TLPRanker(still, bf16=False).score(*asked)).max() > 0.1


def test_trees_are_heard_by_both_ways(toy: ProgramSet) -> None:
    model = _model(toy)
    pair, workload = toy.pairs[0], toy.workloads[toy.pairs[0].workload]
    asked = (workload, "fast", pair.sketch, toy.decisions[0])
    alone = TLPRanker(model, bf16=False).score(*asked)
    encoded = encode_programs(toy, Encoder(toy.spec()))
    # The feature that differs most among these programs.
    column = int(
        encoded.values[toy.members[0]][:, : encoded.templates[0].n_physics].std(0).argmax()
    )
    middle = float(np.median(encoded.values[toy.members[0], column]))
    forest = Forest(
        {
            "feature": np.array([[column, LEAF, LEAF]]),
            "threshold": np.array([[middle, 0, 0]]),
            "left": np.array([[1, 0, 0]]),
            "right": np.array([[2, 0, 0]]),
            "value": np.array([[0, 0.1, 0.9]]),
        }
    )
    model.trees = TreeVotes({"fast": forest}, 2)
    got = TLPRanker(model, bf16=False).score(*asked)
    want = predict(model, as_batch(encoded), torch.from_numpy(toy.members[0]))[:, 0].numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    high = encoded.values[toy.members[0], column] > middle
    logit = np.log(np.where(high, 9.0, 1 / 9.0))
    np.testing.assert_allclose(got, (alone + 2 * logit) / 3, rtol=1e-3, atol=1e-3)


def test_values_in_pieces_are_the_same(toy: ProgramSet) -> None:
    pair = toy.pairs[0]
    ranker = TLPRanker(_model(toy))
    template = ranker._template(toy.workloads[pair.workload], pair.sketch)[0]
    many = np.resize(toy.decisions[0], (1000, toy.decisions[0].shape[1]))
    np.testing.assert_array_equal(encoded_values(template, many, piece=64), template.values(many))
