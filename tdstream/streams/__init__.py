"""Text that can only go forward."""
