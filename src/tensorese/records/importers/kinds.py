"""One platform name stands for one kind of hardware: CPU and GPU records are not mixed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from tensorese.errors import ImportFormatError
from tensorese.records.nouns import Measurement


def target_kind(target: str) -> str:
    """`cuda` of `cuda -keys=cuda,gpu ...`, of `{"kind": "cuda"}`, or of a quoted tag."""
    try:
        parsed = json.loads(target)
    except (ValueError, RecursionError):
        parsed = target
    text = str(parsed.get("kind", "") if isinstance(parsed, dict) else parsed)
    words = text.split()
    return words[0] if words else ""


def of_one_kind(
    records: Iterable[Measurement], known: str = "", source: str = ""
) -> Iterator[Measurement]:
    """Passes the records on; `known` is the kind the platform has in the store already."""
    kinds: dict[str, str] = {}  # targets repeat: each is read once
    for record in records:
        target = record.platform.target
        kind = kinds.get(target)
        if kind is None:
            kind = kinds[target] = target_kind(target)
        if known and kind and kind != known:
            raise ImportFormatError(
                f"a platform has one kind of target, but {source or 'the file'} holds {kind} "
                f"records and {record.platform.name!r} stands for {known}; import them under a "
                "--platform of their own"
            )
        known = known or kind
        yield record
