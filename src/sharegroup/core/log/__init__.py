"""Rules of one log: idempotent producers and transactions, and what compaction keeps."""
