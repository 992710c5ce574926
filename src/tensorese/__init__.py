"""Tensorese: tunes tensor programs with language models of schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorese.api import load as load
    from tensorese.api import tune as tune

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in ("load", "tune"):  # imported when first used: they bring TVM along
        from tensorese import api

        return getattr(api, name)
    raise AttributeError(f"module 'tensorese' has no attribute {name!r}")
