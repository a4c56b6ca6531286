"""One segment of a log: its batches, indexes and swaps, and the lookups in it."""
