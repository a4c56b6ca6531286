"""The columns of ``kafka-share``: those of Spark's own Kafka source, in its order and types.

Spark requires that the Arrow schema of a task's batches equals the one derived from the Spark
schema, so both are defined here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sharegroup.spark.options import ReadOptions
from sharegroup.spark.plan import NOT_DELIVERED
from sharegroup.wire.batches.header_columns import HEADERS
from sharegroup.wire.batches.number_arrays import Integers, number_array

if TYPE_CHECKING:
    from sharegroup.wire.batches.columns import RecordColumns

BATCH_BYTES_MAX = 1024 * 1024
"""Maximum size of an Arrow batch; Spark is slower with larger ones and needs more memory."""

MILLISECONDS_MAX = (2**63 - 1) // 1000
"""Largest timestamp that Spark's microseconds can hold; a producer may send any number."""

_ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "deliveryCount": pa.int32(),
}
_SPARK_TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
    "deliveryCount": IntegerType(),
}


def spark_schema(options: ReadOptions) -> StructType:
    """Return the Spark schema; every column is nullable, as in Spark's Kafka source."""
    left_out = set()
    if not options.include_headers:
        left_out.add("headers")
    if not options.include_delivery_count:
        left_out.add("deliveryCount")
    return StructType(
        [StructField(name, kind) for name, kind in _SPARK_TYPES.items() if name not in left_out]
    )


def arrow_batches(
    columns: RecordColumns,
    options: ReadOptions,
    *,
    topic: str,
    partition: int,
    delivery_counts: Integers,
) -> Iterator[pa.RecordBatch]:
    """Yield the records as Arrow batches; ``delivery_counts`` has one number for each range."""
    count = len(columns.offsets)
    micros = np.clip(columns.timestamps, -MILLISECONDS_MAX, MILLISECONDS_MAX) * 1000
    arrays = {
        "key": columns.keys,
        "value": columns.values,
        "topic": _repeated(topic, count),
        "partition": number_array(np.full(count, partition, dtype=np.int32)),
        "offset": number_array(columns.offsets),
        "timestamp": number_array(micros, _ARROW_TYPES["timestamp"]),
        "timestampType": number_array(columns.timestamp_types),
    }
    if options.include_headers:
        arrays["headers"] = columns.headers
    if options.include_delivery_count:
        counts = delivery_counts[columns.range_index].astype(np.int32)
        arrays["deliveryCount"] = number_array(counts, absent=counts == NOT_DELIVERED)
    schema = pa.schema([(name, _ARROW_TYPES[name]) for name in arrays])
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)
    # By the average size of a row; slices share the memory of the batch.
    rows = max(1, count * BATCH_BYTES_MAX // batch.nbytes)
    for first in range(0, count, rows):
        yield batch.slice(first, rows)


def _repeated(text: str, count: int) -> pa.StringArray:
    """Return the text ``count`` times; ``pa.repeat`` does it too, but imports pandas."""
    encoded = text.encode()
    bounds = np.array([0, len(encoded)], dtype=np.int32)
    single = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(bounds), pa.py_buffer(encoded)]
    )
    _, *buffers = single.take(number_array(np.zeros(count, dtype=np.int32))).buffers()
    return pa.Array.from_buffers(pa.string(), count, [None, *buffers])  # None of them is null.
