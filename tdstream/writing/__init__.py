"""Writing token ids as a corpus that no kill can damage."""
