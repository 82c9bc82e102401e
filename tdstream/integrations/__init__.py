"""Adapters for trainers. Import each by its name: nothing of a trainer is imported before."""
