"""Progress, waiting for data, steps."""
