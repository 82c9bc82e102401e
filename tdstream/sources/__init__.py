"""What each kind of source becomes: an indexed chain of nodes, a live stream, a mixture of sources."""
