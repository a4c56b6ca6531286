"""Per-row outcomes for `foreachBatch`: what becomes of records that are not simply done.

    def process(batch: DataFrame, batch_id: int) -> None:
        batch = batch.persist()
        parsed = batch.withColumn("order", from_json(...))
        dead_letter(parsed.where("order is null"), "orders.dead")
        release(parsed.where("order.customer is null"))
        parsed.where("order is not null").write...

Rows are recognised by their columns topic, partition and offset, which have to be kept.  What
is not named is accepted when the batch is committed.  Named twice, reject counts for more than
release, and release for more than accept.

The rows' column ``offset`` carries in its metadata where the query's reader looks for decisions
(`decision_files`), so nothing has to be configured.  Metadata survives select, filter and join, but
not a Python function over whole frames (``mapInPandas``) or an aggregation; name the batch then:
``reject(bad, source=batch)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sharegroup.client.offset_set import EMPTY, OffsetSet, Range
from sharegroup.client.records import AcknowledgeType
from sharegroup.errors import InvalidConfig
from sharegroup.spark.decision_files import KINDS, default_location, folder_of, write_decisions
from sharegroup.spark.options import stream_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

METADATA_KEY = "kafka-share"
PLACE = ("topic", "partition", "offset")
"""The columns that say which record a row is."""

HEADER_PREFIX = "__dlq.errors."
"""Of the headers that say where a dead letter comes from; as Kafka's own (KIP-1191)."""
MESSAGE_DEFAULT = "Rejected by the query."


class Origin(NamedTuple):
    """What the rows of a query say about where they come from."""

    folder: str
    """Of the query's decisions."""
    group: str
    topics: list[str]
    bootstrap_servers: str


def marked(schema: StructType, given: Mapping[str, str], load: str) -> StructType:
    """The schema of a `load()`, with its origin in the metadata of ``offset``."""
    from pyspark.sql.types import StructField, StructType

    try:
        options = stream_options(given)
    except InvalidConfig:
        return schema  # A batch read; or else the reader says what is wrong.
    folder = folder_of(options.outcomes_location or default_location(), options.group, load)
    origin = Origin(
        folder, options.group, list(options.topics), options.client["bootstrap_servers"]
    )
    metadata = {METADATA_KEY: origin._asdict()}
    return StructType(
        [
            StructField(one.name, one.dataType, one.nullable, metadata)
            if one.name == "offset"
            else one
            for one in schema.fields
        ]
    )


def reject(rows: DataFrame, *, source: DataFrame | None = None) -> int:
    """Have these records never delivered again; returns how many rows these were."""
    return _decide(rows, _constant(AcknowledgeType.REJECT), source)


def release(rows: DataFrame, *, source: DataFrame | None = None) -> int:
    """Have these records delivered again, as long as the group's delivery limit allows."""
    return _decide(rows, _constant(AcknowledgeType.RELEASE), source)


def outcomes(rows: DataFrame, column: str = "outcome", *, source: DataFrame | None = None) -> int:
    """As the column says of each row: ``accept``, ``release`` or ``reject``; null is accept."""
    from pyspark.sql import functions

    named = functions.coalesce(functions.col(column), functions.lit("accept"))
    return _decide(rows, named, source)


def dead_letter(
    rows: DataFrame,
    topic: str,
    *,
    message: str | Column = MESSAGE_DEFAULT,
    options: Mapping[str, str] | None = None,
    source: DataFrame | None = None,
) -> int:
    """Copy these records to ``topic``, with headers that say why, and reject them.

    Key, value and, if the stream has them, headers are kept.  The copies are durable before
    anything is rejected, so a crash in between makes a second copy and loses none.  ``options`` are
    those of a write; without them the records go to the brokers that they came from, which
    needs no more than that when these ask for no login.
    """
    origin = origin_of(rows if source is None else source)
    kept = rows.persist()
    try:
        write = _letters(kept, origin.group, message).write.format("kafka-share").mode("append")
        (
            write.option("kafka.bootstrap.servers", origin.bootstrap_servers)
            .options(**(options or {}))
            .option("topic", topic)
            .save()
        )
        return reject(kept, source=rows if source is None else source)
    finally:
        kept.unpersist()


def origin_of(rows: DataFrame) -> Origin:
    """Which query the rows are of; ValueError when they don't say it."""
    for one in rows.schema.fields:
        if one.name == "offset" and METADATA_KEY in (one.metadata or {}):
            return Origin(**one.metadata[METADATA_KEY])
    raise ValueError(
        f"the rows don't say which query they are of: expected the column offset of a kafka-share "
        f"stream, found the columns {rows.columns}; name the batch: reject(rows, source=batch)"
    )


def _constant(kind: AcknowledgeType) -> Column:
    from pyspark.sql import functions

    return functions.lit(kind.name.lower())


def _decide(rows: DataFrame, outcome: Column, source: DataFrame | None) -> int:
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
    decided: dict[tuple[str, int], dict[AcknowledgeType, OffsetSet]] = {}
    for place, kind, offsets in _grouped(table):
        if place[0] not in origin.topics:
            raise ValueError(
                f"the rows are of a stream of {', '.join(origin.topics)}, and one of them is of "
                f"topic {place[0]!r}: decide about each stream of a union by itself"
            )
        kinds = decided.setdefault(place, {})
        kinds[kind] = kinds.get(kind, EMPTY) | offsets
    if decided:
        write_decisions(origin.folder, decided)
    return int(table.num_rows)


def _grouped(table: pa.Table) -> Iterator[tuple[tuple[str, int], AcknowledgeType, OffsetSet]]:
    """The offsets of each topic, partition and outcome, as ranges."""
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
    """With the list of offsets as a numpy array: it may have a million members."""
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
    import numpy as np

    ascending = np.unique(offsets)
    breaks = np.flatnonzero(np.diff(ascending) > 1)
    firsts = ascending[np.concatenate(([0], breaks + 1))]
    lasts = ascending[np.concatenate((breaks, [len(ascending) - 1]))]
    return zip(firsts.tolist(), (lasts + 1).tolist(), strict=True)


def _letters(rows: DataFrame, group: str, message: str | Column) -> DataFrame:
    """The rows as records of a dead-letter topic."""
    from pyspark.sql import functions

    text = functions.lit(message) if isinstance(message, str) else message
    said = {
        "topic": functions.col("topic"),
        "partition": functions.col("partition"),
        "offset": functions.col("offset"),
        "group": functions.lit(group),
        "message": text,
    }
    if "deliveryCount" in rows.columns:
        said["delivery.count"] = functions.col("deliveryCount")
    headers = functions.array(
        *(
            functions.struct(
                functions.lit(HEADER_PREFIX + name).alias("key"),
                one.cast("string").cast("binary").alias("value"),
            )
            for name, one in said.items()
        )
    )
    if "headers" in rows.columns:
        own = functions.coalesce(functions.col("headers"), functions.slice(headers, 1, 0))
        headers = functions.concat(own, headers)
    key = [functions.col("key")] if "key" in rows.columns else []
    return rows.select(*key, "value", headers.alias("headers"))
