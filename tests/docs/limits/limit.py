"""One row of the table of limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit; `limits` says how to add a row."""

    setting: str
    unit: str
    bounds: str
    answer: str
    """The protocol error that a peer receives at the limit, or another consequence."""
    metric: str = ""
    memory_each: int = 0
    """Bytes of memory per unit; 0 if the limit is not a memory budget of the whole broker."""
