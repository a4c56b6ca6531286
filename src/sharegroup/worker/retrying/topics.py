"""The topics that a route's retries need, as data for whoever makes them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from sharegroup.worker.decisions.tiers import Tiers
from sharegroup.worker.declared.names import due_topic, own_topic
from sharegroup.worker.declared.route import Route

PARTITIONS = 2
"""Of each: so many processes can move records of one tier, and each keeps some of it in mind."""
RECORD_BYTES_MAX = 16 * 1024 * 1024
"""A record that its own topic took must fit here with its story beside it."""

_DAY_MS = 24 * 60 * 60 * 1000
_OUTAGE_MS = 14 * _DAY_MS
"""A retry is lost when no worker runs for longer than this."""


class RetryTopic(NamedTuple):
    """A topic that there must be before the first retry."""

    name: str
    partitions: int
    configs: Mapping[str, str]


def topics_of(route: Route) -> list[RetryTopic]:
    """The route's own topic, where redriven records go too, and its tiers if it retries."""
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
            # The broker's time: what an application's record says of its age would count as its
            # age here, and an old one would be deleted before it is due.
            "message.timestamp.type": "LogAppendTime",
            "retention.bytes": "-1",
            "retention.ms": str(wait_ms + _OUTAGE_MS),
        }
    )
