"""Turn text into a corpus: read, encode, write."""
