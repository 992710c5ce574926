"""LightGBM and XGBoost on the same matrix and folds, tuned on folds 0-2 like the models."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tensorese.evaluation.judge import judged_index
from tensorese.training.recipe import TREES
from tensorese.training.trees import grow_trees
from tlp_bank import packed, save_bank
from tlp_runs import (
    Job,
    encoded_of,
    judge_one,
    programs_of,
    read_rows,
    row_key,
    spec_of,
    task_sides,
)

TUNED_ON = (0, 1, 2)
LIGHTGBM: dict[str, dict[str, Any]] = {
    "tenset": {
        "objective": "regression",
        "num_leaves": 72,
        "learning_rate": 0.163,
        "feature_fraction": 0.84,
        "bagging_fraction": 0.89,
        "bagging_freq": 4,
        "min_sum_hessian_in_leaf": 4,
        "rounds": 250,
    },
    "slow": {
        "objective": "regression",
        "num_leaves": 31,
        "learning_rate": 0.05,
        "feature_fraction": 0.5,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "min_data_in_leaf": 100,
        "rounds": 400,
    },
    "rank": {
        "objective": "lambdarank",
        "num_leaves": 31,
        "learning_rate": 0.05,
        "feature_fraction": 0.5,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "min_data_in_leaf": 50,
        "lambdarank_truncation_level": 100,
        "rounds": 300,
    },
}
XGBOOST: dict[str, dict[str, Any]] = {
    "tenset": {
        "objective": "reg:squarederror",
        "max_depth": 6,
        "eta": 0.2,
        "gamma": 0.003,
        "min_child_weight": 2,
        "rounds": 300,
    },
    "slow": {
        "objective": "reg:squarederror",
        "max_depth": 6,
        "eta": 0.05,
        "colsample_bytree": 0.5,
        "subsample": 0.8,
        "min_child_weight": 20,
        "rounds": 400,
    },
    "rank": {
        "objective": "rank:pairwise",
        "max_depth": 6,
        "eta": 0.05,
        "colsample_bytree": 0.5,
        "subsample": 0.8,
        "min_child_weight": 5,
        "lambdarank_num_pair_per_sample": 8,
        "rounds": 300,
    },
}
SYSTEMS = {"lightgbm": LIGHTGBM, "xgboost": XGBOOST}
CHOSEN = {
    "k80": {"lightgbm": "slow", "xgboost": "tenset"},
    "v100": {"lightgbm": "slow", "xgboost": "slow"},
    "mi50": {"lightgbm": "rank", "xgboost": "tenset"},
    "a100": {"lightgbm": "slow", "xgboost": "slow"},
}
"""What `chosen` says of the rows in `results`, matrix and physics."""
THREADS = int(os.environ.get("TREE_THREADS", "2"))


@lru_cache(maxsize=1)
def columns_of(data: Path, platform: str) -> Any:
    """The matrix laid flat and the physical features, without columns that never change."""
    programs = programs_of(data, (platform,))
    spec = spec_of(programs, Job(table="", system="", platforms=(platform,)))
    encoded = encoded_of(data, (platform,), spec)
    flat = encoded.flat(np.arange(len(programs)))
    return flat[:, np.ptp(flat, axis=0) > 0]


def labels_of(programs: Any) -> Any:
    best = np.full(len(programs.tasks), np.inf)
    valid = programs.valid(0)
    np.minimum.at(best, programs.task[valid], programs.latency[valid, 0])
    return best[programs.task] / programs.latency[:, 0]


def fit_lightgbm(
    x: Any, y: Any, sizes: Any, settings: dict[str, Any], seed: int
) -> Callable[..., Any]:
    import lightgbm

    params = {k: v for k, v in settings.items() if k != "rounds"}
    params |= {"verbose": -1, "num_threads": THREADS, "seed": seed, "max_bin": 127}
    group = None
    if params["objective"] == "lambdarank":
        params["label_gain"] = [2 ** (k / 31) - 1 for k in range(32)]
        y, group = np.minimum((y * 31).astype(int), 31), sizes
    model = lightgbm.train(params, lightgbm.Dataset(x, y, group=group), settings["rounds"])
    return lambda z: model.predict(z, num_threads=THREADS)


def fit_xgboost(
    x: Any, y: Any, sizes: Any, settings: dict[str, Any], seed: int
) -> Callable[..., Any]:
    import xgboost

    params = {k: v for k, v in settings.items() if k != "rounds"}
    params |= {"nthread": THREADS, "seed": seed, "tree_method": "hist", "max_bin": 128}
    data = xgboost.DMatrix(x, y, nthread=THREADS)
    if params["objective"].startswith("rank"):
        data = xgboost.DMatrix(x, np.minimum((y * 31).astype(int), 31), nthread=THREADS)
        data.set_group(sizes)
    model = xgboost.train(params, data, settings["rounds"])
    return lambda z: model.predict(xgboost.DMatrix(z, nthread=THREADS))


def fit_tree(
    system: str, name: str, platform: str, fold: int, seed: int, data: Path
) -> tuple[Callable[..., Any], list[int]]:
    """A function from program indices to scores, and the held-out tasks."""
    programs = programs_of(data, (platform,))
    x, y = columns_of(data, platform), labels_of(programs)
    train, held = task_sides(data, programs, fold)
    index = programs.valid(0)
    index = index[np.isin(programs.task[index], np.asarray(train))]
    index = index[np.argsort(programs.task[index], kind="stable")]
    sizes = np.unique(programs.task[index], return_counts=True)[1]
    fit = fit_lightgbm if system == "lightgbm" else fit_xgboost
    settings = SYSTEMS[system][name]
    model = fit(x[index], y[index], sizes, settings, seed)
    return (lambda i: model(x[i])), held


def run_tree(
    system: str, name: str, platform: str, fold: int, seed: int, data: Path
) -> dict[str, Any]:
    started = time.monotonic()
    score, held = fit_tree(system, name, platform, fold, seed, data)
    row = _key_row(system, name, platform, fold, seed)
    row["seconds_of_all"] = round(time.monotonic() - started, 1)
    return {**row, **judge_one(programs_of(data, (platform,)), platform, held, score)}


def bank_trees(args: argparse.Namespace) -> None:
    """Held-out scores of the chosen settings on all folds, kept for `tlp_mix`."""
    args.out.mkdir(parents=True, exist_ok=True)
    for platform, names in CHOSEN.items():
        for system, name in names.items():
            if not {platform, system} <= set(args.only.split(",")):
                continue
            programs = programs_of(args.data, (platform,))
            arrays: dict[str, Any] = {}
            for fold in range(5):
                score, held = fit_tree(system, name, platform, fold, 0, args.data)
                index = judged_index(programs, platform, held)
                arrays |= packed(f"{platform}/{fold}/0", np.asarray(score(index))[:, None])
                print(f"{platform} {system} {name} fold {fold}", flush=True)
            row = _key_row(system, name, platform, 0, 0)
            row["settings"] |= {"platforms": [platform], "members": 1, "physics_members": 0}
            save_bank(args.out, f"{system}_{platform}", row, arrays)


def bank_grown(args: argparse.Namespace) -> None:
    """Held-out shares that the default model's own trees tell, all folds, for `tlp_mix`."""
    args.out.mkdir(parents=True, exist_ok=True)
    for platform in CHOSEN:
        programs = programs_of(args.data, (platform,))
        encoded = encoded_of(args.data, (platform,), programs.spec())
        features = encoded.values[:, : encoded.templates[0].n_physics]
        arrays: dict[str, Any] = {}
        for fold in range(5):
            train, held = task_sides(args.data, programs, fold)
            index = judged_index(programs, platform, held)
            for seed in range(3):
                forest = grow_trees(programs, encoded, train, TREES, seed)[platform]
                told = forest.predict(features[index])[:, None]
                arrays |= packed(f"{platform}/{fold}/{seed}", told)
            print(f"{platform} fold {fold}", flush=True)
        save_bank(args.out, f"grown_{platform}", {"system": "grown", "trees": TREES}, arrays)


def _key_row(system: str, name: str, platform: str, fold: int, seed: int) -> dict[str, Any]:
    return {
        "table": "trees",
        "system": f"{system} {name}",
        "platform": platform,
        "fold": fold,
        "seed": seed,
        "settings": {**SYSTEMS[system][name], "columns": "matrix and physics"},
        "epochs": 0,
        "steps": SYSTEMS[system][name]["rounds"],
    }


def chosen(rows: list[dict[str, Any]], system: str, platform: str) -> str:
    """The setting with the best mean top-1 over folds 0-2 of this platform."""

    def figure(name: str) -> float:
        found = [
            f[1] / f[2]
            for row in rows
            if row["system"] == f"{system} {name}" and row["platform"] == platform
            if row["fold"] in TUNED_ON and row["seed"] == 0
            for f in row["tasks"].values()
        ]
        return float(np.mean(found)) if found else -1.0

    return max(SYSTEMS[system], key=figure)


def run_trees(args: argparse.Namespace) -> None:
    """Tunes on folds 0-2, then runs the chosen settings on all folds."""
    args.out.mkdir(parents=True, exist_ok=True)
    platforms = ["a100", "k80", "v100", "mi50"]
    systems = list(SYSTEMS)
    if args.only:  # such as k80,lightgbm: processes share the work
        platforms = [name for name in platforms if name in args.only.split(",")]
        systems = [name for name in systems if name in args.only.split(",")] or systems
    path = args.out / f"tlp_rows_trees_{'_'.join([*platforms, *systems])}.jsonl"
    rows = [r for r in read_rows([args.out, *args.rows]) if r["table"] == "trees"]
    done = {row_key(row) for row in rows}
    deadline = time.monotonic() + args.seconds

    def go(system: str, name: str, platform: str, fold: int, seed: int) -> None:
        key = row_key(json.loads(json.dumps(_key_row(system, name, platform, fold, seed))))
        if key in done or time.monotonic() > deadline:
            return
        row = run_tree(system, name, platform, fold, seed, args.data)
        rows.append(row)
        done.add(key)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        top1 = np.mean([f[1] / f[2] for f in row["tasks"].values()])
        print(
            f"{platform} {row['system']} fold {fold}: {top1:.3f} {row['seconds_of_all']}s",
            flush=True,
        )

    for platform in platforms:
        for fold in TUNED_ON:
            for system in systems:
                for name in SYSTEMS[system]:
                    go(system, name, platform, fold, 0)
        for fold in range(5):
            for system in systems:
                go(system, chosen(rows, system, platform), platform, fold, 0)
