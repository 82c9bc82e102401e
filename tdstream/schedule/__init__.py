"""Which sample stands where: integer arithmetic, no files, no torch."""
