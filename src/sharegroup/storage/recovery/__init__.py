"""Recovery of a log after a crash, and the checkpoints and snapshots that shorten it."""
