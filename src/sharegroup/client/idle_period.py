"""A period in which no broker answered a member of a share group that waited for records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IdlePeriod:
    """A period in which a member was idle for so long that the log says so."""

    seconds: float
    knowledge: str
    """What the member knows about the cause, and what to do."""
