"""Reads replies on a real cluster, with a consumer without a group; a `ReplyLog`.

Replies are read from the end of the partition at the start.  A broker that is away is waited for:
asks end by their own time-outs.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

from sharegroup.client import Consumer, ConsumerRecord, TopicPartition
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import UnreadableBatch
from sharegroup.worker.declarations.replies import PARTITIONS
from sharegroup.worker.results.reply import Reply, parsed_reply
from sharegroup.worker.transport.tier_log_kafka import connection_options

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
FETCH_WAIT_MS = 500
FETCH_BYTES = 8 * 1024 * 1024
CLOSE_SECONDS = 5.0


class KafkaReplyLog:
    """Reads one partition of a topic for replies, chosen by chance."""

    __slots__ = ("_consumer", "_topic", "_unreadable")

    def __init__(self, config: ClientConfig, topic: str) -> None:
        self._topic = topic
        self._unreadable = 0
        """Records in the topic that were no replies."""
        self._consumer = Consumer(
            **connection_options(config),
            # A position that is gone, because the topic was made anew: old replies are of no use.
            auto_offset_reset="latest",
            # A reply is in no transaction (`running.returned`).
            isolation_level="read_uncommitted",
            fetch_max_wait_ms=FETCH_WAIT_MS,
            fetch_max_bytes=FETCH_BYTES,
            allow_auto_create_topics=False,
        )

    async def start(self) -> int:
        """Go to the end of a partition, and return its number."""
        where = TopicPartition(self._topic, random.randrange(PARTITIONS))  # noqa: S311
        # By its own request, and not by the first fetch: a reply may come before that.
        end = (await self._consumer.end_offsets([where]))[where]
        self._consumer.assign([where])
        self._consumer.seek(where, end)
        return where.partition

    async def read(self) -> Sequence[Reply]:
        """Wait for replies and return them; what is none is counted and left out."""
        while True:
            try:
                records = await self._consumer.poll(POLL_SECONDS)
            except UnreadableBatch as error:
                self._consumer.seek(TopicPartition(error.topic, error.partition), error.end)
                self._say_unreadable(error.first, error)
                continue
            replies = [reply for record in records if (reply := self._parsed(record)) is not None]
            if replies:
                return replies

    async def close(self) -> None:
        """Close the consumer."""
        await self._consumer.close(CLOSE_SECONDS)

    def _parsed(self, record: ConsumerRecord) -> Reply | None:
        try:
            return parsed_reply(record.key, record.value, record.headers)
        except ValueError as error:
            self._say_unreadable(record.offset, error)
            return None

    def _say_unreadable(self, offset: int, error: Exception) -> None:
        # Only the first one is a warning: a program that writes such records may write thousands.
        level = logging.DEBUG if self._unreadable else logging.WARNING
        self._unreadable += 1
        log.log(
            level,
            "event=reply.unreadable topic=%s offset=%s error=%r action='find the program that "
            "writes to this topic'",
            *(self._topic, offset, str(error)),
        )
