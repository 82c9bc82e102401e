"""Readers of local files of text: one file format per module."""
