"""What `tensorese train KIND` does, one file a family of kinds; torch is imported with them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorese.training.recipes.base import Recipe

_HOMES = {
    **{"tlp": "tlp", "mtl-tlp": "tlp", "physics": "physics"},
    **{"ensemble": "ensemble", "tlm": "tlm"},
    **dict.fromkeys(("tenset-mlp", "atformer", "pacm", "lstm", "mha", "tabnet"), "store_networks"),
    **dict.fromkeys(("xgboost", "lightgbm"), "store_trees"),
}
_PRESETS = {
    **{"tlp": ("paper",), "mtl-tlp": ("paper",)},
    **{"ensemble": ("ship",), "tlm": ("ship", "small", "paper")},
    **{"atformer": ("1L", "M")},
}
"""By kind, beside the default."""


def trainable() -> tuple[str, ...]:
    return tuple(_HOMES)


def presets(kind: str) -> tuple[str, ...]:
    return ("default", *_PRESETS.get(kind, ()))


def recipe_class(kind: str) -> type[Recipe]:
    home = importlib.import_module(f"tensorese.training.recipes.{_HOMES[kind]}")
    recipe: type[Recipe] = home.RECIPE
    return recipe
