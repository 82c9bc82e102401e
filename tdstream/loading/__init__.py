"""Hand batches to trainers, and remember what was given."""
