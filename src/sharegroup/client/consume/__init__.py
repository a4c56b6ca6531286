"""The plain consumer: partitions of topics, read alone or as a member of a consumer group."""
