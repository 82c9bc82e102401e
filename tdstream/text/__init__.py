"""The nodes of the text path: one file each."""
