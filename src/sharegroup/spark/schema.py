"""The columns of ``kafka-share``: those of Spark's own Kafka source, in its order and types.

Spark requires that the Arrow schema of a task's batches equals the one derived from the Spark
schema, so both are defined here.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from sharegroup.spark.partition import NOT_DELIVERED
from sharegroup.wire.columns import RecordColumns
from sharegroup.wire.header_columns import HEADERS
from sharegroup.wire.varints import Integers

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
        "topic": pa.repeat(topic, count),
        "partition": pa.array(np.full(count, partition, dtype=np.int32)),
        "offset": pa.array(columns.offsets),
        "timestamp": pa.array(micros).view(_ARROW_TYPES["timestamp"]),
        "timestampType": pa.array(columns.timestamp_types),
    }
    if options.include_headers:
        arrays["headers"] = columns.headers
    if options.include_delivery_count:
        counts = delivery_counts[columns.range_index].astype(np.int32)
        arrays["deliveryCount"] = pa.array(counts, mask=counts == NOT_DELIVERED)
    schema = pa.schema([(name, _ARROW_TYPES[name]) for name in arrays])
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)
    rows = max(1, count * BATCH_BYTES_MAX // batch.nbytes)
    for first in range(0, count, rows):
        yield batch.slice(first, rows)
