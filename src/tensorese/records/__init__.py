"""Measurements that are never lost: nouns, journal, Parquet store, importers and exporters."""
