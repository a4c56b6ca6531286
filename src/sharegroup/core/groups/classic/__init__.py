"""Classic groups: members that join and sync, and the offsets of all groups."""
