"""Files: segments, logs, durability and recovery."""
