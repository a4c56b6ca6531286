"""Values with a schema in a schema registry as columns: `from_registry` of `columns`."""
