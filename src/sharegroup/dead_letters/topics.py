"""The names and the replicas of topics that a worker or a redrive creates or uses.

A new topic has three replicas, or one per broker if there are fewer brokers.  Its min ISR is one
less than its replicas, so one broker may be down.
"""

from __future__ import annotations

import re

TOPIC_CHARACTERS_MAX = 249
_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_CHARACTERS_MAX}}}")


def is_topic_name(name: str) -> bool:
    """Whether Kafka allows this topic name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def own_topic(group: str) -> str:
    """The group's own topic, which its workers read in addition to the application's topics."""
    return f"{group}.retry"


def group_of(topic: str) -> str | None:
    """Return the group whose own topic this would be; None: it is nobody's own."""
    group = topic.removesuffix(own_topic(""))
    return group if group and group != topic else None


REPLICAS_DEFAULT = 3
MIN_INSYNC = "min.insync.replicas"


def default_replicas(brokers: int) -> int:
    """The replication factor of a new topic on a cluster with this number of brokers."""
    assert brokers >= 1, brokers
    return min(REPLICAS_DEFAULT, brokers)


def default_min_insync(replicas: int) -> int:
    """The min ISR of a topic with this number of replicas."""
    return max(1, replicas - 1)
