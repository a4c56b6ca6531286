"""Storage of the partition logs in files: segments, durability and recovery."""
