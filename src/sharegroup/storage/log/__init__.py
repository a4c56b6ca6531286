"""The log of one partition: appends, reads, retention and compaction."""
