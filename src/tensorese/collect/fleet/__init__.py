"""Measuring on many hosts: rows handed out in small batches, results journalled as they return."""
