"""Small models of every kind, made without training; a new kind joins the contract suite here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from writer_support import micro_writer

from lowered_support import made_up_rows
from tensorese.arrays import Floats32, Ints
from tensorese.features.lowered import COARSE, COLUMNS
from tensorese.features.matrix import MatrixSpec
from tensorese.features.physics import Machine, feature_names
from tensorese.models.atformer import ATFormer, ATFormerConfig
from tensorese.models.base import Model
from tensorese.models.ensemble import Ensemble, Member
from tensorese.models.lstm import LSTM, LSTMConfig
from tensorese.models.mha import MHA, MHAConfig
from tensorese.models.pacm import PaCM, PaCMConfig
from tensorese.models.physics_net import PhysicsConfig, PhysicsNet
from tensorese.models.store_network import StoreModel
from tensorese.models.store_trees import LightGBM, Objective, StoreTrees, XGBoost
from tensorese.models.tabnet import TabNet, TabNetConfig
from tensorese.models.tenset_mlp import TenSetMLP, TenSetMLPConfig
from tensorese.models.tlp import MTLTLP, TLP, TLPConfig, TLPNetwork
from tensorese.models.trees import LEAF, Forest, Trees
from tensorese.records.nouns import Sketch, Workload

PLATFORMS = ("one-1c", "two-2c")


def physics_model(
    platforms: tuple[str, ...] = PLATFORMS, machine: Machine = "cpu", width: int = 16
) -> PhysicsNet:
    """Two networks with weights far from nothing."""
    rng = np.random.default_rng(3)
    features = len(feature_names(machine))
    config = PhysicsConfig(machine=machine, networks=2, width=width, blocks=1)
    shapes = {"encoder.0": (2 * width, features), "encoder.3": (width, 2 * width)}
    shapes["blocks.0"] = (width, width)
    for head in range(len(platforms)):
        shapes |= {f"heads.{head}.0": (width, width), f"heads.{head}.3": (2, width)}
    weights: dict[str, Floats32] = {}
    for network in range(config.networks):
        for name, (rows, columns) in shapes.items():
            place = f"networks.{network}.{name}"
            spread = 1.5 / np.sqrt(columns)
            weights[f"{place}.weight"] = rng.normal(0, spread, (rows, columns)).astype(np.float32)
            weights[f"{place}.bias"] = rng.normal(0, 0.1, rows).astype(np.float32)
    return PhysicsNet(config, platforms, weights)


def stump(feature: int = 0) -> Forest:
    """0.25 up to 1.5 in one feature, 0.75 above; and a tree that always says 0.1."""
    return Forest(
        {
            "feature": np.array([[feature, LEAF, LEAF], [LEAF, LEAF, LEAF]]),
            "threshold": np.array([[1.5, 0, 0], [0, 0, 0]]),
            "left": np.array([[1, 0, 0], [0, 0, 0]]),
            "right": np.array([[2, 0, 0], [0, 0, 0]]),
            "value": np.array([[0, 0.25, 0.75], [0.1, 0, 0]]),
        }
    )


def trees_model(platforms: tuple[str, ...] = PLATFORMS, machine: Machine = "cpu") -> Trees:
    """Every feature counts a little."""
    rng = np.random.default_rng(4)
    count = len(feature_names(machine))
    nodes = np.tile(np.array([0, 1, 2]), (count, 1))
    forests = {
        platform: Forest(
            {
                "feature": np.where(nodes == 0, np.arange(count)[:, None], LEAF),
                "threshold": np.where(nodes == 0, rng.normal(3, 2, (count, 1)), 0.0),
                "left": np.where(nodes == 0, 1, 0),
                "right": np.where(nodes == 0, 2, 0),
                "value": np.where(nodes == 0, 0.0, rng.random((count, 3)) / count),
            }
        )
        for platform in platforms
    }
    return Trees(f"physics-{machine}", forests)


def ensemble_model(
    platforms: tuple[str, ...] = PLATFORMS, machine: Machine = "cpu", votes: int = 3
) -> Ensemble:
    networks, trees = physics_model(platforms, machine), trees_model(platforms, machine)
    return Ensemble([Member(model=networks), Member(model=trees, votes=votes)])


def tlp_model(spec: MatrixSpec, platforms: tuple[str, ...] = PLATFORMS, **changes: Any) -> TLP:
    torch.manual_seed(0)
    config = TLPConfig(spec=spec, width=32, heads=4, **changes)
    network = TLPNetwork(config, platforms).eval()
    return TLP(network) if len(platforms) == 1 else MTLTLP(network)


def store_model(
    cls: type[StoreModel], config: Any, platforms: tuple[str, ...] = PLATFORMS
) -> StoreModel:
    """A network on lowered programs with random weights and columns that were fitted."""
    torch.manual_seed(0)
    model = cls.new(config, platforms)
    model.network.fit_columns(made_up_rows("w", "s", [(k, 2 * k, k % 3) for k in range(40)]))
    model.network.eval()
    return model


def store_trees_model(
    cls: type[StoreTrees], objective: Objective, platforms: tuple[str, ...] = PLATFORMS
) -> StoreTrees:
    """Every column counts a little."""
    columns = COLUMNS + len(COARSE) if objective == "pack-sum" else 2 * COLUMNS + 1 + len(COARSE)
    return cls(objective, {name: _every_column(columns, k) for k, name in enumerate(platforms)})


def _every_column(columns: int, seed: int) -> Forest:
    rng = np.random.default_rng(seed)
    nodes = np.tile(np.array([0, 1, 2]), (columns, 1))
    return Forest(
        {
            "feature": np.where(nodes == 0, np.arange(columns)[:, None], LEAF),
            "threshold": np.where(nodes == 0, rng.normal(3, 2, (columns, 1)), 0.0),
            "left": np.where(nodes == 0, 1, 0),
            "right": np.where(nodes == 0, 2, 0),
            "value": np.where(nodes == 0, 0.0, rng.random((columns, 3)) / (3 * columns)),
        }
    )


def read_rows(model: Model, workload: Workload, sketch: Sketch, decisions: Ints) -> Any:
    """What `model.read` gives, made up where the programs would be lowered."""
    if model.needs.lowers:
        return made_up_rows(workload.id, sketch.id, decisions.tolist())
    return model.read(workload, sketch, decisions)


Maker = Callable[[MatrixSpec, Machine, tuple[str, ...]], Model]
MAKERS: dict[str, Maker] = {
    "tlp": lambda spec, machine, platforms: tlp_model(spec, platforms[:1]),
    "mtl-tlp": lambda spec, machine, platforms: tlp_model(spec, platforms),
    "physics": lambda spec, machine, platforms: physics_model(platforms, machine),
    "trees": lambda spec, machine, platforms: trees_model(platforms, machine),
    "ensemble": lambda spec, machine, platforms: ensemble_model(platforms, machine),
    "tlm": lambda spec, machine, platforms: micro_writer(platforms),
    "tenset-mlp": lambda spec, machine, platforms: store_model(
        TenSetMLP, TenSetMLPConfig(width=24), platforms
    ),
    "atformer": lambda spec, machine, platforms: store_model(
        ATFormer, ATFormerConfig(width=24, heads=2), platforms
    ),
    "pacm": lambda spec, machine, platforms: store_model(
        PaCM, PaCMConfig(width=24, flow=8, heads=2), platforms
    ),
    "lstm": lambda spec, machine, platforms: store_model(LSTM, LSTMConfig(width=24), platforms),
    "mha": lambda spec, machine, platforms: store_model(
        MHA, MHAConfig(width=24, heads=2), platforms
    ),
    "tabnet": lambda spec, machine, platforms: store_model(
        TabNet, TabNetConfig(width=24, decide=8, steps=2), platforms
    ),
    "xgboost": lambda spec, machine, platforms: store_trees_model(XGBoost, "pack-sum", platforms),
    "lightgbm": lambda spec, machine, platforms: store_trees_model(LightGBM, "rank", platforms),
}
"""By kind: of programs with this spec and machine."""
