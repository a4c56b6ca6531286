"""A console in the browser for share groups and dead letters, on any Kafka."""
