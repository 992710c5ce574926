"""A saved model against random order and, where installed, LightGBM on the same matrix."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tensorese.evaluation.judge import Verdict, judge_programs, judged_index
from tensorese.evaluation.metrics import mean_top_k, summary
from tensorese.evaluation.splits import check_disjoint
from tensorese.features.matrix import Encoder
from tensorese.features.programs import (
    DataError,
    Encoded,
    ProgramSet,
    encode_programs,
    read_programs,
)
from tensorese.models.folder import SavedModel
from tensorese.models.predict import as_batch, predict
from tensorese.models.tlp import ModelError
from tensorese.records.store import Store


def evaluate_model(
    saved: SavedModel, stores: Sequence[Store], *, platform: str | None = None, thin: bool = False
) -> dict[str, Any]:
    """Only workloads outside the model's training list are judged."""
    model = saved.model
    name = platform or _only_platform(stores, model.platforms)
    head = model.head_index(name)
    programs = read_programs(stores, platforms=(name,), split="all")
    seen = set(saved.card.training_workloads)
    unseen = [k for k, task in enumerate(programs.tasks) if task not in seen]
    check_disjoint(seen, [programs.tasks[k] for k in unseen], programs.workloads)
    index = judged_index(programs, name, unseen, thin=thin)
    if not len(index):
        raise DataError(
            f"eval judges unseen workloads with valid records, but of {len(programs.tasks)} "
            f"workloads on {name} {len(programs.tasks) - len(unseen)} were trained on and the "
            "rest hold none; give other records"
        )
    encoded = encode_programs(programs, Encoder(model.config.spec))
    device = next(model.parameters()).device
    batch = as_batch(encoded).to(device)
    scores = predict(model, batch, torch.from_numpy(index).to(device))[:, head].cpu().numpy()
    verdict = judge_programs(programs, name, index, scores)
    result = _result(name, verdict)
    result["strangers"] = encoded.strangers
    tree = _tree(programs, encoded, seen, index)
    if tree is not None:
        judged = judge_programs(programs, name, index, tree)
        for k in (1, 5, 10):
            result[f"lightgbm_top{k}"] = mean_top_k(judged.tasks or judged.small, k)
    return result


def _only_platform(stores: Sequence[Store], known: Sequence[str]) -> str:
    both = sorted(set().union(*(store.platforms() for store in stores)) & set(known))
    if len(both) == 1:
        return both[0]
    if not both:
        raise ModelError(
            f"model and records must share a platform, but the model knows {', '.join(known)}; "
            "give its records"
        )
    raise ModelError(f"eval judges one platform, but {', '.join(both)} fit; name one: --platform")


def _result(platform: str, verdict: Verdict) -> dict[str, Any]:
    judged = verdict.tasks or verdict.small
    result: dict[str, Any] = {"platform": platform, **summary(judged)}
    result["small_tasks"] = len(verdict.small) if verdict.tasks else 0
    if verdict.tasks and verdict.small:
        result["small_top1"] = mean_top_k(verdict.small, 1)
    return result


def _tree(
    programs: ProgramSet, encoded: Encoded, seen: set[str], index: Any
) -> np.ndarray[Any, Any] | None:
    """LightGBM trained on the records of the model's own training workloads, if they are here."""
    train = [k for k, task in enumerate(programs.tasks) if task in seen]
    rows = programs.valid(0)
    rows = rows[np.isin(programs.task[rows], np.asarray(train, dtype=np.int64))]
    if len(rows) < 100 or importlib.util.find_spec("lightgbm") is None:
        return None
    import lightgbm

    best = np.full(len(programs.tasks), np.inf)
    np.minimum.at(best, programs.task[rows], programs.latency[rows, 0])
    label = best[programs.task[rows]] / programs.latency[rows, 0]
    flat = encoded.flat(rows)
    moving = np.ptp(flat, axis=0) > 0
    settings = {"objective": "regression", "num_leaves": 31, "learning_rate": 0.05, "verbose": -1}
    settings |= {"feature_fraction": 0.5, "min_data_in_leaf": min(100, len(rows) // 20), "seed": 0}
    model = lightgbm.train(settings, lightgbm.Dataset(flat[:, moving], label), 200)
    asked = encoded.flat(index)[:, moving]
    scores: np.ndarray[Any, Any] = model.predict(asked)
    return scores
