"""The records of internal topics."""
