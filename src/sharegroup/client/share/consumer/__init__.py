"""The share consumer: polling, held records, locks, acknowledgements."""
