"""A topic of the application's own, declared with how it is to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Topic(NamedTuple):
    """What `App.topic` declares."""

    name: str
    partitions: int | None
    """None: as many as there are, and at first what the broker makes."""
    configs: Mapping[str, str]
