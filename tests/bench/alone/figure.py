"""A figure that stands for itself: what was measured, and what is to be reached."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """``at_least`` and ``at_most`` are in the figure's unit; None: no such limit."""

    what: str
    unit: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def reached(self) -> bool:
        """Whether the figure keeps its limits."""
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )
