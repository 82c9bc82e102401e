"""Who this process is, and what processes share."""
