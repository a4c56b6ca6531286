"""A topic that an application declares with its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sharegroup.worker.declarations.replication import NOT_DECLARED, Replication


class TopicDeclaration(NamedTuple):
    """A topic as `App.topic` declares it."""

    name: str
    partitions: int | None
    """None to keep the existing number, and to create the topic with the broker's default."""
    configs: Mapping[str, str]
    replication: Replication = NOT_DECLARED
