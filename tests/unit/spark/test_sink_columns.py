"""Rows of any content as records: what cannot be written is named with its row or column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from sharegroup.errors import InvalidConfig, InvalidRecord
from sharegroup.spark.options import SinkOptions
from sharegroup.spark.sink import check_schema, record_rows
from sharegroup.wire.batches.header_columns import HEADERS

OPTIONS = SinkOptions(client={}, topic="orders")


@pytest.mark.parametrize("headers", [[None], [{"key": None, "value": b"x"}]], ids=str)
def test_header_without_a_name_is_refused_with_its_row(headers: list[Any]) -> None:
    batch = pa.record_batch(
        {
            "value": [b"a", b"b"],
            "headers": pa.array([[{"key": "k", "value": None}], headers], HEADERS),
        }
    )
    with pytest.raises(InvalidRecord, match="row 8 of this task has a header without a name"):
        record_rows(batch, OPTIONS, first_row=7)


def test_column_that_occurs_twice_is_refused() -> None:
    """As after a join; the reader of Arrow batches would fail in each task."""
    schema = StructType([StructField("value", BinaryType()), StructField("value", BinaryType())])
    with pytest.raises(InvalidConfig, match="column 'value' occurs twice"):
        check_schema(OPTIONS, schema)
    ignored = [StructField("offset", LongType()), StructField("offset", LongType())]
    check_schema(OPTIONS, StructType([schema.fields[0], *ignored]))


def test_times_before_1970_are_rounded_down() -> None:
    """A microsecond before 1970 is in the last millisecond of 1969."""
    times = pa.array([-1, -1_000, 1_999, None, -(2**63)], pa.timestamp("us", tz="UTC"))
    rows = record_rows(
        pa.record_batch({"value": [b"v"] * 5, "timestamp": times}), OPTIONS, first_row=0
    )
    assert [row[-1] for row in rows] == [-1, -1, 1, None, -9_223_372_036_854_776]
