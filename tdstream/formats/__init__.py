"""Token files of every format: what they are, where their tokens lie, and where documents end."""
