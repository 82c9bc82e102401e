"""Text to corpus, exactly once."""
