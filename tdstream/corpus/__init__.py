"""What lies on disk, and reading it."""
