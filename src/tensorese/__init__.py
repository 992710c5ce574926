"""Tensorese: tunes tensor programs with language models of schedules."""

__version__ = "0.1.0"
