"""Checks that name every fault of a corpus, and an overview of its contents."""
