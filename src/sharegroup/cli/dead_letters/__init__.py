"""The verbs for dead letters."""
