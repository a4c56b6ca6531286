"""Group commit: one sync for all writes that wait, and the tickets that wait for it."""
