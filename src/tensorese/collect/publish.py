"""A dataset with its card: what `tensorese data publish` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorese.collect.card import card
from tensorese.collect.dataset import LICENCE, publish
from tensorese.collect.tasklist import read_tasks
from tensorese.errors import StoreError
from tensorese.evaluation.noise import compare_stores
from tensorese.records.run_folder import write_text
from tensorese.records.store import Store

CARD = "card.md"


@dataclass(frozen=True, kw_only=True)
class CardText:
    """What a card states that is not in the measurements."""

    title: str = ""
    """The name of the dataset's folder if empty."""
    remarks: str = ""
    licence: str = LICENCE


def publish_dataset(
    sources: Sequence[Path],
    out: Path,
    text: CardText,
    *,
    card_path: Path | None = None,
    tasks: Path | None = None,
    again: Sequence[Path] = (),
) -> dict[str, Any]:
    """Adds stores to the dataset `out`, squeezed, and writes its card anew; the store's facts.

    `tasks` is the list the programs are of (their classes and networks), `again` are stores of
    second measurements, which show the noise.
    """
    for path in sources:
        with Store.open(path) as source:
            if not source.table(["id"]).num_rows:
                raise StoreError(
                    f"a dataset is made of measurements, but {path} has none; collect some with "
                    f"`tensorese collect --out {path}`"
                )
    for path in again:
        Store.open(path).close()
    listed = read_tasks(tasks) if tasks is not None else []
    added = publish(sources, out)
    where = card_path or out / CARD
    with Store.open(out) as store:
        title = text.title or out.resolve().name
        noise = _noise(store, again)
        write_text(where, card(title, store, listed, noise, text.remarks, text.licence))
        return {"added": added, "card": str(where), **store.info()}


def _noise(store: Store, again: Sequence[Path]) -> dict[str, Any]:
    noise: dict[str, Any] = {}
    for path in again:
        with Store.open(path) as second:
            shared = sorted(second.platforms() & store.platforms())
            if not shared:
                raise StoreError(
                    f"--again must hold second measurements of a platform of {store.path}, but "
                    f"{path} has {', '.join(sorted(second.platforms())) or 'none'}"
                )
            for platform in shared:
                noise[platform] = compare_stores(store, second, platform)
    return noise
