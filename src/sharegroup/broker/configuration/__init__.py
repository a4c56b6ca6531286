"""What the broker is told: every key, its type, range and text, and what holds of it now."""
