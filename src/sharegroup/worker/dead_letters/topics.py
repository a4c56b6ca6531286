"""What must exist for the dead letters of a route: topics, and settings of its group."""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.worker.declared.dead_letter import BrokerDeadLetter, DeadLetter, topic_of
from sharegroup.worker.declared.route import Route
from sharegroup.worker.durations import seconds

RETENTION_FOR_EVER = "-1"
LETTER_BYTES_MAX = 16 * 1024 * 1024
"""A record that its own topic took must fit here with all that is said of it."""


class DeclaredTopic(NamedTuple):
    """A topic that a route needs."""

    name: str
    partitions: int
    configs: dict[str, str]


def letters_topic(route: Route) -> str | None:
    """The topic that the worker itself writes this route's letters to."""
    letters = route.dead_letter
    return topic_of(letters, route.group) if isinstance(letters, DeadLetter) else None


def topics_of(route: Route) -> list[DeclaredTopic]:
    """What the letters of this route need to exist."""
    match route.dead_letter:
        case None:
            return []
        case BrokerDeadLetter(topic):
            return [DeclaredTopic(topic, 1, {"errors.deadletterqueue.group.enable": "true"})]
        case DeadLetter() as letters:
            name = letters_topic(route)
            assert name is not None, "a worker's letters have a topic"
            kept = letters.retention
            milliseconds = RETENTION_FOR_EVER if kept is None else str(round(seconds(kept) * 1000))
            configs = {
                "cleanup.policy": "delete",
                "max.message.bytes": str(LETTER_BYTES_MAX),
                "retention.ms": milliseconds,
            }
            return [DeclaredTopic(name, letters.partitions, configs)]


def group_configs_of(route: Route) -> dict[str, str]:
    """What the group must be told, for the broker to write its letters, copies and all."""
    if isinstance(route.dead_letter, BrokerDeadLetter):
        return {
            "errors.deadletterqueue.topic.name": route.dead_letter.topic,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
    return {}
