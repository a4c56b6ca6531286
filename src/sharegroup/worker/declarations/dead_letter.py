"""Declarations of where the dead letters of a share group go."""

from __future__ import annotations

from dataclasses import dataclass, field

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.checks import (
    PARTITIONS_MAX,
    checked_topic,
    dead_topic,
    is_whole,
)
from sharegroup.worker.declarations.topics import Replication
from sharegroup.worker.durations import Duration, seconds


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Dead letters that the worker writes, with headers that describe the failure.

    ``topic`` defaults to ``<group>.dead``.  With ``retention=None`` they are kept forever.
    ``replication_factor`` and ``min_insync_replicas`` default to those of the App.
    """

    topic: str | None = None
    partitions: int = 1
    retention: Duration | None = "14d"
    replication_factor: int | None = None
    min_insync_replicas: int | None = None
    retention_seconds: float | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.topic is not None:
            checked_topic(self.topic, "DeadLetter")
        if not is_whole(self.partitions, 1, PARTITIONS_MAX):
            raise InvalidConfig(f"DeadLetter: partitions={self.partitions!r}; expected 1 or more")
        Replication(self.replication_factor, self.min_insync_replicas).checked("DeadLetter")
        try:
            kept = None if self.retention is None else seconds(self.retention)
        except (TypeError, ValueError) as error:
            raise InvalidConfig(f"DeadLetter: retention: {error}") from None
        object.__setattr__(self, "retention_seconds", kept)


@dataclass(frozen=True, slots=True)
class BrokerDeadLetter:
    """Dead letters that the broker writes (KIP-1191), with Kafka's headers.

    Needs Apache Kafka 4.4 or this project's broker.
    """

    topic: str

    def __post_init__(self) -> None:
        checked_topic(self.topic, "BrokerDeadLetter")


def dead_letter_of(
    value: DeadLetter | BrokerDeadLetter | str | None,
) -> DeadLetter | BrokerDeadLetter | None:
    """Convert the option ``dead_letter``, which may be a topic name, to a declaration."""
    return DeadLetter(value) if isinstance(value, str) else value


def topic_of(letters: DeadLetter | BrokerDeadLetter | None, group: str) -> str | None:
    """The topic of the dead letters of this group; None if there are none."""
    match letters:
        case DeadLetter(topic):
            return topic or dead_topic(group)
        case BrokerDeadLetter(topic):
            return topic
        case None:
            return None
