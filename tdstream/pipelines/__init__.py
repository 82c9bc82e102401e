"""Compose nodes into a dataset."""
