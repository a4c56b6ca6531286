"""The runs of a share partition, live and stored, as lines."""
