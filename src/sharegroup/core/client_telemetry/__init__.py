"""Metrics that clients push (KIP-714): who pushes which metrics, how often, and their values."""
