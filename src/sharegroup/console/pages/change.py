"""What a change is given and what it returns, for pages and the checks in `web.changes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Fields = Mapping[str, str]
"""The fields of a form or of a JSON document, by name."""


class Subject(NamedTuple):
    """What a change is about."""

    group: str | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change did."""

    address: str
    """The page, relative to the console, that shows the result."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The same as values for JSON."""
