"""Tables that fit: long names break, and on a narrow screen every row becomes a block."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WORDS = ("task", "kernel", "shape", "class", "best over trials")
"""Columns of text or pictures; the others hold numbers."""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """`rows` are HTML already; a cell knows its column's name, which a narrow screen shows."""
    heads = "".join(f"<th{_kind(column)}>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{_kind(column)} data-name="{escape(column)}">{cell}</td>'
            for column, cell in zip(columns, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<table class="rows"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'


def _kind(column: str) -> str:
    return "" if column in WORDS else ' class="num"'
