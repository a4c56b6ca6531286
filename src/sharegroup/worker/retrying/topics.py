"""The retry topics that a route needs, with their partitions and configurations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from sharegroup.dead_letters.topics import own_topic
from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declarations.checks import due_topic
from sharegroup.worker.declarations.route import Route

PARTITIONS = 2
"""The number of partitions of each topic, and so of processes that can move its records.

Each partition costs memory, because its owner keeps some of its records there.
"""
RECORD_BYTES_MAX = 16 * 1024 * 1024
"""The maximum record size of a retry topic.

It is large, because a record is larger here than in its origin topic: its story is added.
"""

_DAY_MS = 24 * 60 * 60 * 1000
_OUTAGE_MS = 14 * _DAY_MS
"""Time for which retries are kept if no worker runs; after that they are lost."""


class RetryTopic(NamedTuple):
    """A topic that must exist before the first retry."""

    name: str
    partitions: int
    configs: Mapping[str, str]


def topics_of(route: Route) -> list[RetryTopic]:
    """Return the group's own topic, where redriven records go too, and the tiers if it retries."""
    waits = {own_topic(route.group): 0}
    if route.retry is not None:
        waits[due_topic(route.group)] = 0
        tiers = Tiers.of(route.retry_tiers).tiers
        waits |= {tier.topic(route.group): tier.delay_ms for tier in tiers}
    return [RetryTopic(name, PARTITIONS, _configs(wait_ms)) for name, wait_ms in waits.items()]


def _configs(wait_ms: int) -> Mapping[str, str]:
    return MappingProxyType(
        {
            "cleanup.policy": "delete",
            "max.message.bytes": str(RECORD_BYTES_MAX),
            # The broker's time.  With the timestamp of the application's record, retention would
            # delete an old record before it is due.
            "message.timestamp.type": "LogAppendTime",
            "retention.bytes": "-1",
            "retention.ms": str(wait_ms + _OUTAGE_MS),
        }
    )
