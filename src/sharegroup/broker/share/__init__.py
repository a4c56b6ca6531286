"""Share partitions in use: who runs them, who keeps their state, where dead letters go."""
