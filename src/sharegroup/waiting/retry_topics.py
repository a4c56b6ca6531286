"""The names of what a group has for its retries; all are named after the group.

billing.retry               due retries and redriven records, for this group alone
billing.retry.5s ... 6h     the tiers: retry topics with a fixed delay
billing.retry.due           retries that are due within the delay of the smallest tier
billing.retry.control       commands for waiting records, and their answers
billing.retry-scheduler     the consumer group of the retry scheduler
"""

from __future__ import annotations

import re

from sharegroup.dead_letters.topics import own_topic

DUE = "due"
CONTROL = "control"
CONTROL_PARTITION = 0
"""The only one that is used, because commands and answers of a record need an order."""
_TIER = re.compile(rf"(\d+(w|d|h|m|s|ms))+|{DUE}")


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


def control_topic(group: str) -> str:
    """The topic of commands for the waiting records of this group, and of their answers."""
    return tier_topic(group, CONTROL)
