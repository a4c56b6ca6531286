"""The topics and group settings that the dead letters of a route require."""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.dead_letters.letter import LETTER_BYTES_MAX
from sharegroup.worker.declarations.dead_letter import BrokerDeadLetter, DeadLetter, topic_of
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.durations import seconds

RETENTION_FOR_EVER = "-1"


class DeclaredTopic(NamedTuple):
    """A topic that the dead letters of a route require."""

    name: str
    partitions: int
    configs: dict[str, str]


def letters_topic(route: Route) -> str | None:
    """The topic to which the worker writes this route's letters; None if it writes none."""
    letters = route.dead_letter
    return topic_of(letters, route.group) if isinstance(letters, DeadLetter) else None


def topics_of(route: Route) -> list[DeclaredTopic]:
    """The topics that the dead letters of this route require."""
    match route.dead_letter:
        case None:
            return []
        case BrokerDeadLetter(topic):
            return [DeclaredTopic(topic, 1, {"errors.deadletterqueue.group.enable": "true"})]
        case DeadLetter() as letters:
            name = letters_topic(route)
            assert name is not None, "a DeadLetter always has a topic"
            kept = letters.retention
            milliseconds = RETENTION_FOR_EVER if kept is None else str(round(seconds(kept) * 1000))
            configs = {
                "cleanup.policy": "delete",
                "max.message.bytes": str(LETTER_BYTES_MAX),
                "retention.ms": milliseconds,
            }
            return [DeclaredTopic(name, letters.partitions, configs)]


def group_configs_of(route: Route) -> dict[str, str]:
    """The group settings with which the broker writes letters that include the records."""
    if isinstance(route.dead_letter, BrokerDeadLetter):
        return {
            "errors.deadletterqueue.topic.name": route.dead_letter.topic,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
    return {}
