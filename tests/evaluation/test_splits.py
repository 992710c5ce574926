from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from synthetic_support import matmul_workload
from tensorese.evaluation.splits import (
    LeakError,
    by_network,
    by_operator,
    by_workload,
    check_disjoint,
)
from tensorese.records.importers import Skipped
from tensorese.records.importers.ansor import read_ansor
from tensorese.records.nouns import Workload

pytestmark = pytest.mark.null


def _workloads() -> dict[str, Workload]:
    made = [matmul_workload(m, n, 8) for m in range(1, 6) for n in range(1, 6)]
    made += [Workload(operator="relu", args=w.args) for w in made[:5]]
    return {w.id: w for w in made}


def test_folds_are_even_and_operators_spread() -> None:
    workloads = _workloads()
    folds = by_workload(workloads)
    assert set(Counter(folds.values()).values()) == {6}
    relus = [folds[name] for name, w in workloads.items() if w.operator == "relu"]
    assert sorted(relus) == [0, 1, 2, 3, 4]


def test_folds_do_not_depend_on_the_order_given() -> None:
    workloads = _workloads()
    assert by_workload(workloads) == by_workload(dict(reversed(workloads.items())))


def test_by_operator_keeps_operators_whole() -> None:
    workloads = _workloads()
    folds = by_operator(workloads)
    per_operator = {w.operator: folds[name] for name, w in workloads.items()}
    assert all(folds[name] == per_operator[w.operator] for name, w in workloads.items())
    assert len(set(per_operator.values())) == 2


def test_by_network_holds_a_shared_workload_out() -> None:
    folds = by_network({"w1": {"bert"}, "w2": {"bert", "resnet"}, "w3": {"resnet"}}, "resnet")
    assert folds == {"w1": 1, "w2": 0, "w3": 0}


def test_guard_finds_a_workload_on_both_sides() -> None:
    workloads = _workloads()
    names = list(workloads)
    check_disjoint(names[:5], names[5:], workloads)
    with pytest.raises(LeakError, match=names[4]):
        check_disjoint(names[:5], names[4:], workloads)


def test_guard_sees_through_another_id() -> None:
    one = matmul_workload(8, 8, 8)
    with pytest.raises(LeakError):
        check_disjoint(["alias"], [one.id], {"alias": one, one.id: one})


@pytest.mark.shared
def test_twins_on_three_platforms_land_together(shared_data: Path, tmp_path: Path) -> None:
    """K80 and V100 write SAME where MI50 writes a padding number: still one workload."""

    def workloads_of(platform: str) -> dict[str, Workload]:
        with pa.input_stream(shared_data / "ansor" / f"{platform}.json.zst") as stream:
            lines = stream.read().decode().splitlines()
        # One record per workload key is enough, and many times faster than all of them.
        first = {line.split('","', 1)[0]: line for line in lines}
        few = tmp_path / f"{platform}.json"
        few.write_text("\n".join(first.values()) + "\n")
        found = (m.program.workload for m in read_ansor(few, platform, Skipped()))
        return {workload.id: workload for workload in found}

    k80, mi50, v100 = (workloads_of(p) for p in ("k80", "mi50", "v100"))
    convolutions = {name for name, w in mi50.items() if "conv2d" in w.operator}
    assert len(convolutions & k80.keys() & v100.keys()) >= 30
    together = by_workload({**k80, **mi50, **v100})
    for fold in range(5):
        train = [name for name in {**k80, **v100} if together[name] != fold]
        check_disjoint(train, [name for name in mi50 if together[name] == fold], {**k80, **mi50})
