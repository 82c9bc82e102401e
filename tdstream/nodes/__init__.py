"""The shard path, one node per file: source, reader, permutation, splitter, collate."""
