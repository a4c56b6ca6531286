"""Which names topics and groups may have, and what those are called that a worker adds.

A group's own topics are named after it, so a group of a worker is named as topics are::

    billing.retry               what is due again, or was sent back: for this group alone
    billing.retry.5s ... 6h     the tiers, where retries wait (`decisions.tiers`)
    billing.retry.due           where those wait that are due within the smallest tier
    billing.retry-scheduler     the consumer group that moves them on
    billing.dead                its dead letters, unless they were given a topic
"""

from __future__ import annotations

import re

from sharegroup.errors import InvalidConfig

DUE = "due"
PARTITIONS_MAX = 2**31 - 1

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_GROUP = re.compile(r"[a-zA-Z0-9._-]{1,220}")
_TIER = re.compile(rf"(\d+(w|d|h|m|s|ms))+|{DUE}")


def checked_topic(name: object, whose: str) -> str:
    """The name, if Kafka allows it."""
    if isinstance(name, str) and _TOPIC.fullmatch(name) and name not in (".", ".."):
        return name
    raise InvalidConfig(
        f"{whose}: topic {name!r}; expected 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    )


def checked_group(name: object) -> str:
    """The name, if topics of the group's own can be named after it."""
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


def own_topic(group: str) -> str:
    """The topic of this group alone that its workers read beside the application's."""
    return f"{group}.retry"


def tier_topic(group: str, tier: str) -> str:
    """Where records of this group wait in the tier of this name."""
    return f"{own_topic(group)}.{tier}"


def due_topic(group: str) -> str:
    """Where what is due within the smallest tier waits."""
    return tier_topic(group, DUE)


def is_tier_topic(group: str, topic: str) -> bool:
    """Whether a tier of this group is called that, whatever its delays are today."""
    first = tier_topic(group, "")
    return topic.startswith(first) and _TIER.fullmatch(topic[len(first) :]) is not None


def scheduler_group(group: str) -> str:
    """The consumer group whose members move records down the tiers."""
    return f"{own_topic(group)}-scheduler"


def dead_topic(group: str) -> str:
    """Where the dead letters of this group go when nobody says where."""
    return f"{group}.dead"
