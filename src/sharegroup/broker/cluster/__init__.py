"""What exists: topics with their logs, features and producer ids, and the catalog of all that."""
