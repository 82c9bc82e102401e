"""Errors, argument checks, node state, and the user's cache: what every room may import."""
