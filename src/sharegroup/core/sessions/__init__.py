"""Share sessions and fetch sessions: which partitions a client fetches, and which are due."""
