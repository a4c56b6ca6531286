"""The stored form of a share partition's state."""
