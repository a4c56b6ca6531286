"""The verbs about the cluster as a whole."""
