"""What every benchmark raises when it did not do what it is measured for."""

from __future__ import annotations


class BenchError(Exception):
    """A measurement that must not be counted."""
