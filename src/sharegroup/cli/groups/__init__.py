"""The verbs for groups of every type."""
