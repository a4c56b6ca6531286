"""`redrive`: sends the dead letters of a DataFrame back to the groups that could not process them.

It is the redrive of ``sharegroup dlq`` with the rows as selection: the same copies, the same ledger
and the same limit for records that come back again and again.  It runs in the driver, which reads
the letters once more, because the columns do not contain all of a letter.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame

from sharegroup.client.loop_thread import LoopThread
from sharegroup.client.settings.client_config import ReadingConfig
from sharegroup.spark.letters.source import METADATA_KEY
from sharegroup.spark.options import sending_client

if TYPE_CHECKING:
    from sharegroup.dead_letters.redriven import Redriven

READING_OPTIONS = frozenset(option.name for option in fields(ReadingConfig))
PLACE = ("topic", "partition", "offset")
REDRIVES_MAX = 3


def redrive(
    rows: DataFrame,
    *,
    to: Literal["own", "original"] = "own",
    max_redrives: int = REDRIVES_MAX,
    again: bool = False,
    confirm: Iterable[str] = (),
    options: Mapping[str, str] | None = None,
) -> dict[str, Redriven]:
    """Send these dead letters back to their groups; returns the result for each topic of letters.

    The rows need the columns topic, partition and offset of ``kafka-share-letters``.  ``to="own"``
    is the topic ``<group>.retry``, which only the group's workers read; ``"original"`` the topic of
    the record, which all its groups read.  Letters that were redriven before, or ``max_redrives``
    times in all, stay; ``again`` includes the former.  Letters with the value true in the column
    claimed are only sent to the topics of ``confirm``, because each producer of their topic can
    write a letter that names any group and topic.  A letter that cannot be sent stays, too, and
    is in `Redriven.refused`.  Brokers that require a login need ``options``: those of a write.
    """
    places = _places(rows)
    client = _client(rows, options or {})
    redrive_options = {
        "to": to, "redrives_max": max_redrives, "again": again, "confirmed": frozenset(confirm),
    }  # fmt: skip
    thread = LoopThread("kafka-share-redrive")
    thread.enter()
    try:
        return {
            topic: thread.run(_redriven(topic, frozenset(of_topic), client, redrive_options))
            for topic, of_topic in sorted(places.items())
        }
    finally:
        thread.leave()


def _places(rows: DataFrame) -> Mapping[str, set[tuple[int, int]]]:
    """Return partition and offset of the letters, by topic."""
    if rows.isStreaming:
        raise ValueError("dead letters are redriven batch by batch: call this in foreachBatch")
    missing = [name for name in PLACE if name not in rows.columns]
    if missing:
        raise ValueError(
            f"the rows have no column {', '.join(missing)}; expected {', '.join(PLACE)} of "
            f"kafka-share-letters, found {rows.columns}"
        )
    return _by_topic(rows.select(*PLACE).distinct().toLocalIterator())


def _by_topic(places: Iterable[Any]) -> Mapping[str, set[tuple[int, int]]]:
    by_topic: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for topic, partition, offset in places:
        by_topic[topic].add((partition, offset))
    return by_topic


def _client(rows: DataFrame, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of the client, with the brokers of the read unless options name others."""
    servers = "kafka.bootstrap.servers"
    if servers not in {name.lower() for name in options}:
        for column in rows.schema.fields:
            if column.name == "offset" and METADATA_KEY in (column.metadata or {}):
                options = {**options, servers: column.metadata[METADATA_KEY]}
                break
        else:
            raise ValueError(
                "the rows do not show which brokers they are from: expected the column offset of "
                f"kafka-share-letters, found the columns {rows.columns}; pass "
                f"options={{{servers!r}: 'host:port'}}"
            )
    return sending_client(options)


async def _redriven(
    topic: str,
    places: frozenset[tuple[int, int]],
    client: Mapping[str, Any],
    redrive_options: Mapping[str, Any],
) -> Redriven:
    # Imported here because executors import this module, but send nothing back.
    from sharegroup.client.produce.producer import Producer
    from sharegroup.dead_letters.letter import LETTER_BYTES_MAX
    from sharegroup.dead_letters.queue import DeadLetterQueue
    from sharegroup.dead_letters.redrive import Redrive
    from sharegroup.dead_letters.redrive_copies import RedriveOptions
    from sharegroup.dead_letters.selection import Selection

    # A letter has more headers than the record sent back, so this limit is large enough.
    producer = Producer(**{"request_bytes_max": LETTER_BYTES_MAX, **client})
    reading = {name: value for name, value in client.items() if name in READING_OPTIONS}
    try:
        async with DeadLetterQueue(topic, **reading) as queue:
            options = RedriveOptions(selection=Selection(places=places), **redrive_options)
            return await Redrive(queue, producer, options).run(asyncio.Event())
    finally:
        await producer.close(timeout=0)
