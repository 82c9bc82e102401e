"""The command line: the only rooms of the package that print."""
