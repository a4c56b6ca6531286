"""Plain reads of partitions, without a group: offsets (ListOffsets) and record batches (Fetch)."""
