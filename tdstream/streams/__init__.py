"""Live streams: one pass over the records, the pipeline around it, and the ranks that end together."""
