"""The subcommands of ``tdstream``."""
