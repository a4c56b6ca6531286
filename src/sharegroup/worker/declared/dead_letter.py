"""Where records go that can't be done."""

from __future__ import annotations

from dataclasses import dataclass, field

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declared.names import PARTITIONS_MAX, checked_topic, dead_topic
from sharegroup.worker.declared.numbers import is_whole
from sharegroup.worker.durations import Duration, seconds


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The worker writes them, with all that is known of their failure.

    ``topic`` None: ``<group>.dead``.  ``retention`` None: they are kept for ever.
    """

    topic: str | None = None
    partitions: int = 1
    retention: Duration | None = "14d"
    retention_seconds: float | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.topic is not None:
            checked_topic(self.topic, "DeadLetter")
        if not is_whole(self.partitions, 1, PARTITIONS_MAX):
            raise InvalidConfig(f"DeadLetter: partitions={self.partitions!r}; expected 1 or more")
        try:
            kept = None if self.retention is None else seconds(self.retention)
        except (TypeError, ValueError) as error:
            raise InvalidConfig(f"DeadLetter: retention: {error}") from None
        object.__setattr__(self, "retention_seconds", kept)


@dataclass(frozen=True, slots=True)
class BrokerDeadLetter:
    """The broker writes them (KIP-1191; Apache Kafka 4.4, and ours); the reason is Kafka's."""

    topic: str

    def __post_init__(self) -> None:
        checked_topic(self.topic, "BrokerDeadLetter")


def dead_letter_of(
    value: DeadLetter | BrokerDeadLetter | str | None,
) -> DeadLetter | BrokerDeadLetter | None:
    """From the name of a topic too."""
    return DeadLetter(value) if isinstance(value, str) else value


def topic_of(letters: DeadLetter | BrokerDeadLetter | None, group: str) -> str | None:
    """Where the dead letters of this group go."""
    match letters:
        case DeadLetter(topic):
            return topic or dead_topic(group)
        case BrokerDeadLetter(topic):
            return topic
        case None:
            return None
