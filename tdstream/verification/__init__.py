"""Name everything that is wrong with a corpus."""
