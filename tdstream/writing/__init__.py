"""Token ids into a corpus that no kill can spoil."""
