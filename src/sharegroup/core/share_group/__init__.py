"""A share group: members, heartbeats, assignment, sizes and records."""
