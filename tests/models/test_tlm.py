"""The network that writes: one answer at a time as all at once, and how answers are drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from writer_support import TARGET, micro_writer

from cpu_records_support import SKETCH, cpu_space, cpu_workload
from tensorese.arrays import Ints
from tensorese.features.sentences import grammar_of
from tensorese.language.sentence import OPTION, Grammar
from tensorese.models.base import ModelError
from tensorese.models.tlm import (
    TLM,
    Prompts,
    Sampling,
    TLMConfig,
    TLMNetwork,
    dialogue_of,
    log_likelihood,
    sized,
)
from tensorese.space.decoding import Decoder, SketchDecoder

pytestmark = pytest.mark.null

SIZES = ((64, 48, 32), (30, 49, 64))


def grammar(m: int = 64, n: int = 48, k: int = 32) -> Grammar:
    row = [m, 1, 1, 1, n, 1, 1, 1, k, 1, 0]
    return grammar_of(cpu_workload(m, n, k), SKETCH, row)


def write(
    model: TLM, sampling: Sampling, n: int = 32, seed: int = 0, *, atomic: bool = False
) -> tuple[list[Ints], np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Of two tasks side by side."""
    grammars = [replace(grammar(*size), atomic=atomic) for size in SIZES]
    parts = [SketchDecoder(cpu_space(*s), g, n) for s, g in zip(SIZES, grammars, strict=True)]
    decoder = Decoder(parts)
    prompts = [model.prompt(g, "toy") for g in grammars]
    logs = model.write(prompts, decoder, sampling, seed)
    return decoder.rows(), logs


def test_what_is_written_step_by_step_is_as_likely_as_all_at_once() -> None:
    """No part of these tiles can exceed its limit: no mask takes anything away."""
    model = micro_writer()
    rows, logs = write(model, Sampling())
    for k, size in enumerate(SIZES):
        g = grammar(*size)
        cache = model.network.read(Prompts.stack([model.prompt(g, "toy")]))
        dialogue = dialogue_of([g.write(rows[k])], [np.arange(len(rows[k]))])
        speeds = torch.full(dialogue.answers_PRS.shape[:2], model.wish)
        with torch.inference_mode():
            at_once = log_likelihood(model.network, cache, speeds, dialogue)[0]
        np.testing.assert_allclose(logs[k], at_once.numpy(), rtol=1e-4, atol=1e-3)


def test_a_limit_makes_the_rest_likelier() -> None:
    """Parts of 128 may be 64 at most: what remains shares the probability."""
    model, size = micro_writer(), (64, 48, 128)
    decoder = Decoder([SketchDecoder(cpu_space(*size), grammar(*size), 64)])
    prompt = model.prompt(grammar(*size), "toy")
    logs = model.write([prompt], decoder, Sampling(), 0)[0]
    written = grammar(*size).write(decoder.rows()[0])
    cache = model.network.read(Prompts.stack([prompt]))
    dialogue = dialogue_of([written], [np.arange(64)])
    speeds = torch.full(dialogue.answers_PRS.shape[:2], model.wish)
    with torch.inference_mode():
        free = log_likelihood(model.network, cache, speeds, dialogue)[0].numpy()
    assert (logs > free + 1e-3).all()


def test_every_row_is_legal_and_the_seed_decides() -> None:
    model = micro_writer()
    rows, logs = write(model, Sampling())
    same, _ = write(model, Sampling())
    other, _ = write(model, Sampling(), seed=1)
    assert np.isfinite(logs).all()
    for k, size in enumerate(SIZES):
        assert cpu_space(*size).legal(rows[k]).all()
        np.testing.assert_array_equal(rows[k], same[k])
        assert (rows[k] != other[k]).any()


def test_without_masks_illegal_answers_end_their_programs() -> None:
    """A model that says 0, 1 or an option, whatever is asked: little of it is legal."""
    model = micro_writer()
    with torch.no_grad():
        model.network.head.bias[2:OPTION] = -20.0
        model.network.head.bias[OPTION : OPTION + 4] = -1.5
        model.network.head.bias[OPTION + 4 :] = -20.0
    rows, logs = write(model, Sampling(masked=False), n=512)
    _, masked = write(model, Sampling(), n=512)
    assert np.isfinite(masked).all()
    model.network.config = replace(model.network.config, masked=False)
    for k, size in enumerate(SIZES):
        ended = np.isfinite(logs[k])
        assert 0 < ended.sum() < 256
        legal = rows[k][ended]
        assert cpu_space(*size).legal(legal).all()
        g = grammar(*size)  # what a model that learns without masks is taught
        cache = model.network.read(Prompts.stack([model.prompt(g, "toy")]))
        dialogue = dialogue_of([g.write(legal)], [np.arange(len(legal))])
        speeds = torch.full(dialogue.answers_PRS.shape[:2], model.wish)
        with torch.inference_mode():
            at_once = log_likelihood(model.network, cache, speeds, dialogue)[0]
        np.testing.assert_allclose(logs[k][ended], at_once.numpy(), rtol=1e-4, atol=1e-3)


def test_whole_numbers_are_written_and_legal() -> None:
    torch.manual_seed(0)
    network = TLMNetwork(TLMConfig(width=16, layers=1, heads=2, atomic=True))
    torch.nn.init.normal_(network.head.weight, std=0.3)
    model = TLM(network, {"toy": TARGET})
    rows, logs = write(model, Sampling(), atomic=True)
    assert np.isfinite(logs).all()
    for k, size in enumerate(SIZES):
        assert cpu_space(*size).legal(rows[k]).all() and len(np.unique(rows[k], axis=0)) > 16


def test_temperature_zero_writes_the_likeliest_alone() -> None:
    model = micro_writer()
    rows, logs = write(model, Sampling(temperature=0.0), n=4)
    assert all(len(np.unique(each, axis=0)) == 1 for each in rows)
    _, drawn = write(model, Sampling(), n=64)
    assert (logs[:, 0] >= np.quantile(drawn, 0.9, axis=1)).all()


@pytest.mark.parametrize("sampling", [Sampling(top_k=2), Sampling(top_p=0.5)])
def test_cuts_leave_likelier_programs(sampling: Sampling) -> None:
    model = micro_writer()
    _, cut = write(model, sampling, n=64)
    _, free = write(model, Sampling(), n=64)
    assert cut.mean() > free.mean() + 0.5


def test_guidance_moves_away_from_no_wish() -> None:
    model = micro_writer()
    plain, _ = write(model, Sampling())
    guided, _ = write(model, Sampling(guidance=3.0))
    assert (plain[0] != guided[0]).any()


def test_sketches_are_judged_by_their_prompts_alone() -> None:
    model = micro_writer()
    prompts = [model.prompt(grammar(*size), "toy") for size in SIZES]
    both = model.sketch_scores(prompts)
    np.testing.assert_allclose(both[:1], model.sketch_scores(prompts[:1]), rtol=1e-4, atol=1e-5)
    assert both[0] != both[1]


def test_a_shorter_prompt_beside_a_longer_one_reads_no_padding() -> None:
    model = micro_writer()
    long = model.prompt(grammar(), "toy")
    alone, beside = (model.sketch_scores(prompts) for prompts in ([long[:-4]], [long[:-4], long]))
    np.testing.assert_allclose(beside[:1], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [{"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}])
def test_sampling_that_cannot_be_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="temperature and top_k must not be negative"):
        Sampling(**bad)  # type: ignore[arg-type]


def test_sizes() -> None:
    with pytest.raises(ModelError, match="one of tiny, small, paper, but got 'huge'"):
        sized("huge")
    with pytest.raises(ValueError, match="width must be heads times an even number"):
        TLMConfig(width=15, heads=2)
    paper = sized("paper")
    assert (paper.layers, paper.heads, paper.width) == (12, 12, 768)
