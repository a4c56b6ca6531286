"""The broker's configuration: every key with its type, range and text, and the effective values."""
