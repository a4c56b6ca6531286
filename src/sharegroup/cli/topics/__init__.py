"""The verbs for topics and their settings."""
