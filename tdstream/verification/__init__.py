"""Checks that name everything that is wrong with a corpus, and an overview of what is in it."""
