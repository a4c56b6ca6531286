"""Per-row outcomes for `foreachBatch`: releases, rejects or dead-letters records of a batch.

    def process(batch: DataFrame, batch_id: int) -> None:
        batch = batch.persist()
        parsed = batch.withColumn("order", from_json(...))
        dead_letter(parsed.where("order is null"), "orders.dead")
        release(parsed.where("order.customer is null"))
        parsed.where("order is not null").write...

Rows are identified by their columns topic, partition and offset, which must be kept.  All other
records are accepted when the batch is committed.  If a record has several outcomes, reject takes
precedence over release, and release over accept.

The metadata of the column ``offset`` holds the folder where the query's reader looks for decisions
(`decision_files`), so no configuration is needed.  Metadata survives select, filter and join, but
not a Python function over whole frames (``mapInPandas``) or an aggregation.  In that case pass the
batch: ``reject(bad, source=batch)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import StructField, StructType

from sharegroup.client.share.session.acknowledgements import delay_ms_of, released_after
from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet, Range
from sharegroup.durations import Duration
from sharegroup.errors import InvalidConfig
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.decision_files import KINDS, default_location, folder_of, write_decisions
from sharegroup.spark.options import stream_options
from sharegroup.wire.internal_topics.dead_letter_headers import KAFKA_PREFIX

METADATA_KEY = "kafka-share"
PLACE = ("topic", "partition", "offset")
"""The columns that identify the record of a row."""

MESSAGE_DEFAULT = "Rejected by the query."


class Origin(NamedTuple):
    """The origin of a query's rows, from the metadata of the column ``offset``."""

    folder: str
    """The folder for the query's decisions."""
    group: str
    topics: list[str]
    bootstrap_servers: str


def marked(schema: StructType, given: Mapping[str, str], load: str) -> StructType:
    """Return the schema of a `load()` with its origin in the metadata of ``offset``."""
    try:
        options = stream_options(given)
    except InvalidConfig:
        return schema  # A batch read, or options that the reader will report as invalid.
    folder = folder_of(options.outcomes_location or default_location(), options.group, load)
    origin = Origin(
        folder, options.group, list(options.topics), options.client["bootstrap_servers"]
    )
    metadata = {METADATA_KEY: origin._asdict()}
    return StructType(
        [
            StructField(column.name, column.dataType, column.nullable, metadata)
            if column.name == "offset"
            else column
            for column in schema.fields
        ]
    )


def reject(rows: DataFrame, *, source: DataFrame | None = None) -> int:
    """Reject these records, so they are never delivered again; returns the number of rows."""
    return _decide(rows, _constant(AcknowledgeType.REJECT), source)


def release(
    rows: DataFrame, *, delay: Duration | None = None, source: DataFrame | None = None
) -> int:
    """Release these records, so they are delivered again within the delivery count limit.

    With ``delay``, a text as ``"30s"``, a timedelta or a number of seconds up to 24 hours, our
    broker delivers them after that time, which begins when the batch is acknowledged.  Without it
    the group's setting ``sharegroup.redelivery.delay.ms`` applies.  Apache Kafka has no delays:
    there the query ends with an error that says so.  Returns the number of rows.
    """
    return _decide(rows, _constant(AcknowledgeType.RELEASE), source, delay)


def outcomes(
    rows: DataFrame,
    column: str = "outcome",
    *,
    delay: Duration | None = None,
    source: DataFrame | None = None,
) -> int:
    """Apply the outcome in the column to each row; returns the number of rows.

    Values are ``accept``, ``release`` or ``reject``; null is accept.  ``delay`` is that of the
    released records, as in `release`.
    """
    named = functions.coalesce(functions.col(column), functions.lit("accept"))
    return _decide(rows, named, source, delay)


def dead_letter(
    rows: DataFrame,
    topic: str,
    *,
    message: str | Column = MESSAGE_DEFAULT,
    options: Mapping[str, str] | None = None,
    source: DataFrame | None = None,
) -> int:
    """Copy these records to ``topic``, with headers that give the reason, and reject them.

    Key, value and, if the stream has them, headers are kept.  The copies are durable before any
    record is rejected, so a crash in between causes a second copy but loses no record.  ``options``
    are those of a write.  By default the records go to the brokers of the stream; brokers that
    require a login need ``options`` for it.  Returns the number of rows.
    """
    origin = origin_of(rows if source is None else source)
    # Evaluated once: the rows that are copied must be the rows that are rejected.
    level = rows.storageLevel
    # What the caller has persisted is the caller's to unpersist.
    is_ours = not (level.useMemory or level.useDisk)
    if is_ours:
        rows.persist()
    try:
        write = _letters(rows, origin.group, message).write.format("kafka-share").mode("append")
        (
            write.option("kafka.bootstrap.servers", origin.bootstrap_servers)
            .options(**(options or {}))
            .option("topic", topic)
            .save()
        )
        return reject(rows, source=source)
    finally:
        if is_ours:
            rows.unpersist()


def origin_of(rows: DataFrame) -> Origin:
    """Return the origin of the rows. ValueError if they have no such metadata."""
    for column in rows.schema.fields:
        if column.name == "offset" and METADATA_KEY in (column.metadata or {}):
            return Origin(**column.metadata[METADATA_KEY])
    raise ValueError(
        "the rows do not show which query they belong to: expected the column offset of a "
        f"kafka-share stream, found the columns {rows.columns}; pass the batch: "
        "reject(rows, source=batch)"
    )


def _constant(kind: AcknowledgeType) -> Column:
    return functions.lit(kind.name.lower())


def _decide(
    rows: DataFrame,
    outcome: Column,
    source: DataFrame | None,
    delay: Duration | None = None,
) -> int:
    release_type = AcknowledgeType.RELEASE if delay is None else released_after(delay_ms_of(delay))
    origin = origin_of(rows if source is None else source)
    if rows.isStreaming:
        raise ValueError("outcomes are decided batch by batch: call this in foreachBatch")
    missing = [name for name in PLACE if name not in rows.columns]
    if missing:
        raise ValueError(
            f"the rows have no column {', '.join(missing)}; expected {', '.join(PLACE)}, "
            f"found {rows.columns}"
        )
    placed = rows.where(" and ".join(f"{name} is not null" for name in PLACE))
    table = placed.select(*PLACE, outcome.alias("outcome")).toArrow()
    decided: dict[tuple[str, int], dict[int, OffsetSet]] = {}
    for place, named, offsets in _grouped(table):
        kind = release_type if named is AcknowledgeType.RELEASE else named
        # A union has the metadata of one of its streams
        # (`tests/integration/spark/test_outcomes_stream.py`).
        if place[0] not in origin.topics:
            raise ValueError(
                f"the rows belong to a stream of {', '.join(origin.topics)}, but one of them is of "
                f"topic {place[0]!r}: decide about each stream of a union separately"
            )
        kinds = decided.setdefault(place, {})
        kinds[kind] = kinds.get(kind, EMPTY) | offsets
    # Without rows there is nothing to store, and a query that decides nothing needs no folder.
    if decided:
        write_decisions(origin.folder, decided)
    return int(table.num_rows)


def _grouped(table: pa.Table) -> Iterator[tuple[tuple[str, int], AcknowledgeType, OffsetSet]]:
    """Iterate over the offsets of each topic, partition and outcome, as ranges."""
    grouped = table.group_by(["topic", "partition", "outcome"]).aggregate([("offset", "list")])
    for topic, partition, outcome, offsets in _rows(grouped):
        kind = KINDS.get(outcome)
        if kind is None:
            raise ValueError(
                f"topic {topic!r} partition {partition}: outcome {outcome!r}; "
                f"expected one of {', '.join(KINDS)}"
            )
        yield (topic, partition), kind, OffsetSet(tuple(_ranges(offsets)))


def _rows(grouped: pa.Table) -> Iterator[tuple[str, int, str, Any]]:
    """Iterate over the rows, with the offsets as a numpy array: there may be a million of them."""
    lists = grouped.column("offset_list").combine_chunks()
    places = zip(
        grouped.column("topic").to_pylist(),
        grouped.column("partition").to_pylist(),
        grouped.column("outcome").to_pylist(),
        strict=True,
    )
    for index, place in enumerate(places):
        yield (*place, lists[index].values.to_numpy())


def _ranges(offsets: Any) -> Iterable[Range]:
    # Rows may be in any order, and a join or an explode gives a record several rows.
    ascending = np.unique(offsets)
    breaks = np.flatnonzero(np.diff(ascending) > 1)
    firsts = ascending[np.concatenate(([0], breaks + 1))]
    lasts = ascending[np.concatenate((breaks, [len(ascending) - 1]))]
    return zip(firsts.tolist(), (lasts + 1).tolist(), strict=True)


def _letters(rows: DataFrame, group: str, message: str | Column) -> DataFrame:
    """Return the rows as records of a dead-letter topic."""
    text = functions.lit(message) if isinstance(message, str) else message
    facts = {
        "topic": functions.col("topic"),
        "partition": functions.col("partition"),
        "offset": functions.col("offset"),
        "group": functions.lit(group),
        "message": text,
    }
    if "deliveryCount" in rows.columns:
        facts["delivery.count"] = functions.col("deliveryCount")
    headers = functions.array(
        *(
            functions.struct(
                functions.lit(KAFKA_PREFIX + name).alias("key"),
                fact.cast("string").cast("binary").alias("value"),
            )
            for name, fact in facts.items()
        )
    )
    if "headers" in rows.columns:
        # A slice of no elements is an empty array of the right type; concat with null gives null.
        own = functions.coalesce(functions.col("headers"), functions.slice(headers, 1, 0))
        headers = functions.concat(own, headers)
    key = [functions.col("key")] if "key" in rows.columns else []
    return rows.select(*key, "value", headers.alias("headers"))
