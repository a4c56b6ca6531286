"""Diagnosis and repair of a data directory whose broker does not run."""
