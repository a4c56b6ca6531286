"""Finding and mending damage in a data directory."""
