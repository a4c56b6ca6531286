"""`ShareConsumer`: polls, records in hand with their acquisition locks, and acknowledgements."""
