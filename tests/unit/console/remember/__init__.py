"""What the console remembers."""
