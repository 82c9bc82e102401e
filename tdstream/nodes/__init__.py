"""The nodes of a pipeline, one per file; none knows another."""
