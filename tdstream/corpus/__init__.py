"""What lies on disk: token shards and their meta.json."""
