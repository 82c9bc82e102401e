"""The place of every sample: integer arithmetic, no files, no torch."""
