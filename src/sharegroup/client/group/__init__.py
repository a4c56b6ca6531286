"""A member of a share group: heartbeats, its assignment, and whether it is idle."""
