"""The verb serve and those for a broker's files: logs, data."""
