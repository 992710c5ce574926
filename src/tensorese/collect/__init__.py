"""Collecting measurements: which tasks, which programs, how long, and how sure of the times."""
