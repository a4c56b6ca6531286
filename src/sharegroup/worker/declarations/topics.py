"""The topics that an application declares, with those of its dead letters, and their replicas.

Declarations of `Retry`, `DeadLetter` and `App.topic` apply to their topics.  Those of `App` apply
to all other topics that a worker creates.

Without a declaration a topic has three replicas, or one per broker if there are fewer brokers.  Its
min ISR is one less than its replicas, so one broker may be down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sharegroup.dead_letters.topics import default_min_insync, default_replicas
from sharegroup.durations import Duration, seconds
from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.checks import (
    PARTITIONS_MAX,
    checked_topic,
    dead_topic,
    is_whole,
)

REPLICAS_MAX = 2**15 - 1


class Replication(NamedTuple):
    """A declared replication factor and min ISR; None if not declared."""

    replication_factor: int | None = None
    min_insync_replicas: int | None = None

    def checked(self, whose: str) -> Replication:
        """Return this declaration; raise InvalidConfig if its numbers are not possible."""
        for name, value in self._asdict().items():
            if value is not None and not is_whole(value, 1, REPLICAS_MAX):
                raise InvalidConfig(f"{whose}: {name}={value!r}; expected 1 or more")
        factor, insync = self
        if factor is not None and insync is not None and insync > factor:
            raise InvalidConfig(
                f"{whose}: min_insync_replicas={insync} is above replication_factor={factor}; "
                f"expected at most {factor}, or one less if one broker may be unavailable"
            )
        return self

    def over(self, other: Replication) -> Replication:
        """Merge with ``other``, whose numbers apply where this declaration has none."""
        return Replication(
            other.replication_factor if self.replication_factor is None else self[0],
            other.min_insync_replicas if self.min_insync_replicas is None else self[1],
        )

    def both(self, other: Replication) -> Replication:
        """Merge two declarations for one topic: the larger number of each."""
        pairs = zip(self, other, strict=True)
        return Replication(
            *(
                max((number for number in pair if number is not None), default=None)
                for pair in pairs
            )
        )


NOT_DECLARED = Replication()


def replicas_of(declared: Replication, brokers: int) -> int:
    """The replication factor of a new topic on a cluster with this number of brokers."""
    return declared.replication_factor or default_replicas(brokers)


def min_insync_of(declared: Replication, replicas: int) -> int:
    """The min ISR of a topic with this number of replicas; never above that number."""
    return min(declared.min_insync_replicas or default_min_insync(replicas), replicas)


class TopicDeclaration(NamedTuple):
    """A topic as `App.topic` declares it."""

    name: str
    partitions: int | None
    """None to keep the existing number, and to create the topic with the broker's default."""
    configs: Mapping[str, str]
    replication: Replication = NOT_DECLARED
    payload: Any = None
    """The type of its records' values; None if not declared."""


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
