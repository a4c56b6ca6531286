"""The committed offsets of partitions that were just assigned, asked for until they are known.

A listener that raised would end the membership, and each member of the group would rebalance for
one answer that was late.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sharegroup.client import CommitFailedError, Consumer
from sharegroup.client.records import ConsumerGroupMetadata
from sharegroup.errors import KafkaError
from sharegroup.worker.retrying.tier_log import OwnershipLost

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
"""Time between two attempts."""
T = TypeVar("T")


async def offsets_of_assigned(
    consumer: Consumer, ask: Callable[[], Awaitable[T]], group: str, partitions: str
) -> T | None:
    """Return what ``ask`` returns; errors that are not retriable are raised.

    None if the membership ends before: then the group tells of the loss of the partitions.
    """
    while True:
        try:
            return await ask()
        except (KafkaError, OwnershipLost) as error:
            if isinstance(error, KafkaError) and not error.retriable:
                raise
            log.warning(
                "event=assignment.waits group=%s %s error=%r action='the committed offsets are "
                "asked for again; until then, nothing is read'",
                *(group, partitions, error),
            )
            try:
                member_of(consumer)
            except OwnershipLost:
                return None
        await asyncio.sleep(PAUSE_SECONDS)


def member_of(consumer: Consumer) -> ConsumerGroupMetadata:
    """Return the member that a consumer is; raises OwnershipLost without a membership."""
    try:
        return consumer.group_metadata()
    except CommitFailedError as error:
        raise OwnershipLost(str(error)) from error
