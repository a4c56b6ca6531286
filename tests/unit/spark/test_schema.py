"""Arrow batches are of the type that Spark derives from the schema, and of a size it likes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from sharegroup.spark.options import stream_options
from sharegroup.spark.plan import NOT_DELIVERED
from sharegroup.spark.schema import MILLISECONDS_MAX, arrow_batches, spark_schema
from sharegroup.wire.batches.columns import OffsetRanges, record_columns
from sharegroup.wire.batches.records import SimpleRecord, encode_batch


def options_for(**more):
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "share.group": "g"}
    return stream_options(given | more)


def batches_of(records, *, delivery_count=1, **more):
    options = options_for(**more)
    log = bytes(encode_batch(records))
    ranges = OffsetRanges.of([(0, len(records))])
    return [
        batch
        for columns in record_columns(log, ranges, headers=options.include_headers)
        for batch in arrow_batches(
            columns,
            options,
            topic="orders",
            partition=3,
            delivery_counts=np.array([delivery_count]),
        )
    ]


@pytest.mark.parametrize("headers", ["false", "true"])
@pytest.mark.parametrize("delivery_count", ["false", "true"])
def test_batches_have_exactly_the_schema_that_spark_compares_with(headers, delivery_count):
    more = {"includeHeaders": headers, "includeDeliveryCount": delivery_count}
    expected = to_arrow_schema(spark_schema(options_for(**more)), timezone="UTC")
    (batch,) = batches_of([SimpleRecord(None, b"v", 5, [("h", b"")])], **more)
    assert batch.schema.equals(expected)
    batch.validate(full=True)


@pytest.mark.parametrize(
    ("milliseconds", "microseconds"),
    [(0, 0), (-1, -1_000), (1_500, 1_500_000), (2**62, MILLISECONDS_MAX * 1_000)],
)
def test_times_are_kept_or_cut_at_what_spark_can_hold(milliseconds, microseconds):
    (batch,) = batches_of([SimpleRecord(None, b"v", milliseconds)])
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [microseconds]


def test_record_not_delivered_by_a_group_has_no_delivery_count():
    batches = batches_of(
        [SimpleRecord(None, b"v", 0)], delivery_count=NOT_DELIVERED, includeDeliveryCount="true"
    )
    assert batches[0].column("deliveryCount").to_pylist() == [None]


def test_many_small_rows_are_divided_into_batches():
    sizes = [batch.num_rows for batch in batches_of([SimpleRecord(None, b"", 0)] * 120_000)]
    assert sizes == [24_818, 24_818, 24_818, 24_818, 20_728]


def test_large_rows_are_divided_into_batches_of_a_megabyte():
    batches = batches_of([SimpleRecord(None, bytes(100_000), 0)] * 35)
    assert [batch.num_rows for batch in batches] == [10, 10, 10, 5]
    assert (
        sum(batch.num_rows for batch in batches_of([SimpleRecord(None, bytes(9_000_000), 0)])) == 1
    )
