"""Rows of a batch become decisions about offsets."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.decision_files import folder_of
from sharegroup.spark.outcomes import METADATA_KEY, _grouped, _ranges, marked

SCHEMA = StructType([StructField("topic", StringType()), StructField("offset", LongType())])
STREAM = {
    "kafka.bootstrap.servers": "broker:9092",
    "subscribe": "orders,refunds",
    "share.group": "g/1",
    "outcomeslocation": "/somewhere",
}


def table(*rows: tuple[str, int, int, str]) -> pa.Table:
    names = ("topic", "partition", "offset", "outcome")
    return pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))


def test_rows_are_grouped_by_place_and_outcome() -> None:
    rows = table(
        ("orders", 0, 5, "reject"),
        ("orders", 0, 3, "release"),
        ("orders", 1, 9, "reject"),
        ("orders", 0, 4, "reject"),
        ("orders", 0, 5, "reject"),
    )
    assert {(place, kind): offsets for place, kind, offsets in _grouped(rows)} == {
        (("orders", 0), AcknowledgeType.REJECT): OffsetSet(((4, 6),)),
        (("orders", 0), AcknowledgeType.RELEASE): OffsetSet(((3, 4),)),
        (("orders", 1), AcknowledgeType.REJECT): OffsetSet(((9, 10),)),
    }


def test_unknown_outcome_is_refused() -> None:
    rows = table(("orders", 3, 5, "rejected"))
    with pytest.raises(ValueError, match=r"'orders' partition 3: outcome 'rejected'; expected one"):
        list(_grouped(rows))


@given(st.lists(st.integers(0, 50), min_size=1))
def test_offsets_in_any_order_become_ranges(offsets: list[int]) -> None:
    expected = OffsetSet.of((offset, offset + 1) for offset in offsets)
    assert tuple(_ranges(offsets)) == expected.ranges


def test_offset_column_of_a_stream_has_the_metadata_of_its_source() -> None:
    columns = {field.name: field for field in marked(SCHEMA, STREAM, "load").fields}
    assert columns["offset"].metadata[METADATA_KEY] == {
        "folder": folder_of("/somewhere", "g/1", "load"),
        "group": "g/1",
        "topics": ["orders", "refunds"],
        "bootstrap_servers": "broker:9092",
    }
    assert [name for name, column in columns.items() if column.metadata] == ["offset"]


def test_batch_read_has_no_decision_metadata() -> None:
    given_options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}
    assert marked(SCHEMA, given_options, "load") == SCHEMA
