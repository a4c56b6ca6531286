"""Share partitions in use: running them, storing their state, writing their dead letters."""
