"""The files of a corpus on disk, and their readers."""
