"""Corpora into the files of other tools, and back."""
