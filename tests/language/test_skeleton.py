from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tensorese.features.matrix import Encoder, fit_spec, signed_log2
from tensorese.language import Vocabulary, skeleton, split_steps, split_trace
from tensorese.language.skeleton import Hole, Slots, read_sentence

pytestmark = pytest.mark.null


def test_holes_sit_where_decisions_show() -> None:
    body, slots, _ = split_steps(
        [["SP", 1, 0, 8, [2, 4], 1], ["PR", 1, 0, "auto_unroll_max_step$16"]]
    )
    rows = skeleton("ansor", body, slots).rows
    assert rows[0].args == (1, 0, 8, Hole(0), Hole(1), 1)
    assert rows[1].args == (1, 0, "auto_unroll_max_step", Hole(2))


def test_a_choice_shows_as_index_and_as_candidate() -> None:
    trace = [
        [
            ["SampleCategorical", [], [[0, 16, 64], [0.3, 0.3, 0.4]], ["v0"]],
            ["Annotate", ["b1", "v0"], ["meta_schedule.unroll_explicit"], []],
        ],
        [[0, 1]],
    ]
    body, slots, _, _ = split_trace(trace)
    bones = skeleton("metaschedule", body, slots)
    assert Hole(0, (0, 1, 2)) in bones.rows[0].args
    assert Hole(0, (0, 16, 64)) in bones.rows[1].args
    assert bones.tables == {0: (0, 16, 64)}


@pytest.mark.shared
@pytest.mark.parametrize("name", ["k80", "x86", "metaschedule"])
def test_public_records_fill_like_they_read(name: str, shared_data: Path) -> None:
    """Templates of real sketches, filled, equal the records read one by one; no strangers."""
    path = shared_data / "ansor" / f"{name}.json.zst"
    if name == "metaschedule":
        path = shared_data / name / "a100_resnet34" / "database_tuning_record.json.zst"
    with pa.input_stream(path) as stream:
        lines = stream.read().decode().splitlines()
    by_sketch: dict[tuple[str, Slots], list[tuple[int, ...]]] = {}
    for line in lines[:: len(lines) // 300]:
        record = json.loads(line)
        if name == "metaschedule":
            body, slots, decisions, _ = split_trace(record[1][0])
        else:
            body, slots, decisions = split_steps(record["i"][1][1])
        by_sketch.setdefault((body, slots), []).append(decisions)
    dialect = name if name == "metaschedule" else "ansor"
    bones = {key: skeleton(dialect, *key) for key in by_sketch}
    spec = replace(fit_spec(bones.values()), recorded=True)
    encoder = Encoder(spec, Vocabulary())
    for key, rows in by_sketch.items():
        matrix = encoder.encode(bones[key]).matrix(rows)
        for k, primitive in enumerate(read_sentence(dialect, *key, rows[-1]), 1):
            numbers = [arg for arg in primitive.args if not isinstance(arg, str)]
            got = matrix[-1, k, 1 + spec.names + 2 :][: len(numbers)]
            np.testing.assert_allclose(got, signed_log2(numbers)[: len(got)], atol=1e-5)
    assert not encoder.vocabulary.strangers
