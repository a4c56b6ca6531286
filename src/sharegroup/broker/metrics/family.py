"""One metric: its name, type, unit, text and labels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MetricType(StrEnum):
    """The type of a metric, as the text format names it."""

    COUNTER = "counter"
    """A sum that only grows, and begins anew at a restart."""
    GAUGE = "gauge"
    """A current value."""
    HISTOGRAM = "histogram"
    """The number of values up to each of several bounds."""
    SUMMARY = "summary"
    """The number of values and their sum."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric; ``kafkas`` are the names of the MBean attributes that it corresponds to."""

    name: str
    kind: MetricType
    unit: str
    text: str
    labels: tuple[str, ...] = ()
    kafkas: tuple[str, ...] = ()
