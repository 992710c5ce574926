"""Reports of a tuning run, drawn from its folder alone."""

from __future__ import annotations

from tensorese.report.write import write_report

__all__ = ["write_report"]
