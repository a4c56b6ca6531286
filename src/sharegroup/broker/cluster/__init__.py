"""The catalog of the broker: topics with their logs, features and producer ids."""
