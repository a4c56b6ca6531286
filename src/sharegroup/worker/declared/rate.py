"""How many records a handler may begin in a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimit:
    """``records`` in every ``seconds``, in this process; up to ``burst`` at once."""

    records: float
    seconds: float = 1.0
    burst: int | None = None
