"""Checks of topic and group names, and the names of topics that a worker adds to a group.

These topics are named after the group, so the name of a group must be valid in a topic name::

    billing.retry               due retries and redriven records, for this group alone
    billing.retry.5s ... 6h     the tiers: retry topics with a fixed delay (`decisions.tiers`)
    billing.retry.due           retries that are due within the delay of the smallest tier
    billing.retry-scheduler     the consumer group of the retry scheduler
    billing.dead                the dead letters, unless their topic is declared
"""

from __future__ import annotations

import re

from sharegroup.dead_letters.topics import is_topic_name, own_topic
from sharegroup.errors import InvalidConfig

DUE = "due"
PARTITIONS_MAX = 2**31 - 1

_GROUP = re.compile(r"[a-zA-Z0-9._-]{1,220}")
_TIER = re.compile(rf"(\d+(w|d|h|m|s|ms))+|{DUE}")


def checked_topic(name: object, whose: str) -> str:
    """Return ``name`` if Kafka allows it as a topic name; raise InvalidConfig otherwise."""
    if isinstance(name, str) and is_topic_name(name):
        return name
    raise InvalidConfig(
        f"{whose}: topic {name!r}; expected 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    )


def checked_group(name: object) -> str:
    """Return ``name`` if the group's own topics can be named after it.

    Raises InvalidConfig otherwise.
    """
    if isinstance(name, str) and _GROUP.fullmatch(name):
        return name
    if callable(name):
        raise InvalidConfig(
            f"share_group: expected a group's name, got {name!r}; "
            f"write @app.share_group('group', topics='topic') above the handler"
        )
    raise InvalidConfig(
        f"share group {name!r}: expected 1 to 220 of the characters a-z A-Z 0-9 . _ -, "
        f"because its own topics are named <group>.retry and so on"
    )


def tier_topic(group: str, tier: str) -> str:
    """The retry topic of this tier of the group."""
    return f"{own_topic(group)}.{tier}"


def due_topic(group: str) -> str:
    """The retry topic of records that are due within the delay of the smallest tier."""
    return tier_topic(group, DUE)


def is_tier_topic(group: str, topic: str) -> bool:
    """Whether this can be a tier's topic of the group, with any delays."""
    prefix = tier_topic(group, "")
    return topic.startswith(prefix) and _TIER.fullmatch(topic[len(prefix) :]) is not None


def scheduler_group(group: str) -> str:
    """The consumer group of the retry scheduler, which moves records down the tiers."""
    return f"{own_topic(group)}-scheduler"


def dead_topic(group: str) -> str:
    """The default dead-letter topic of this group."""
    return f"{group}.dead"
