"""Who the peer of a connection is, and what it may do."""
