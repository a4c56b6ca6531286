"""The verbs for workers."""
