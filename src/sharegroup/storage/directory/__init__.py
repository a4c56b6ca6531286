"""The data directory: all logs, the journal of the catalog, checkpoints and deletions."""
