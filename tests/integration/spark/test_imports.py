"""What is missing is said with what to install; what Spark looks for is where it looks."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pyspark_sharegroup
import sharegroup.spark
from sharegroup.spark import KafkaShareDataSource
from sharegroup.wire.batches.records import SimpleRecord, encode_batch


@pytest.mark.parametrize(
    ("missing", "module", "message"),
    [
        ("pyspark", "sharegroup.spark", "needs PySpark, pip install '.[spark]'"),
        ("pyarrow", "sharegroup.wire.batches.columns", "pip install '.[arrow]'"),
        ("numpy", "sharegroup.wire.batches.columns", "pip install '.[arrow]'"),
    ],
)
def test_missing_library_is_named_with_its_extra(missing, module, message):
    code = f"import sys; sys.modules[{missing!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert message in done.stderr


def test_spark_finds_the_format_by_the_package_name():
    assert pyspark_sharegroup.DefaultSource is KafkaShareDataSource
    assert KafkaShareDataSource.name() == "kafka-share"


def loaded_by(imports: str) -> set[str]:
    """The modules that a new process has loaded after these imports."""
    code = f"import sys, {imports}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return set(done.stdout.decode().split())


CLIENT = {
    "aiokafka",
    "asyncio",
    "kio",
    "sharegroup.client.net.cluster",
    "sharegroup.client.share.ranges.share_ranges",
    "sharegroup.dead_letters",
    "sharegroup.spark.executor_fetch",
    "sharegroup.spark.stream_member",
}


def test_planning_loads_no_client():
    """Spark starts a process for the schema and one for the plan; each takes the import's time."""
    loaded = loaded_by("pyspark_sharegroup, sharegroup.spark.stream_reader")
    assert "sharegroup.spark.source" in loaded
    assert not loaded & {
        *CLIENT,
        "sharegroup.spark.executor_read",
        "sharegroup.wire.batches.columns",
    }


def test_a_task_whose_records_are_kept_loads_no_client():
    loaded = loaded_by("sharegroup.spark.stream_reader, sharegroup.spark.executor_read")
    assert "sharegroup.wire.batches.columns" in loaded
    assert not loaded & CLIENT


def test_a_task_that_fetches_loads_the_plain_fetch_and_no_other_client():
    loaded = loaded_by("sharegroup.spark.executor_fetch")
    assert "sharegroup.client.fetch.range_fetch" in loaded
    assert not loaded & {
        "sharegroup.client.fetch.record_reading",
        "sharegroup.client.share.member.membership",
        "sharegroup.client.produce.producer",
        "sharegroup.client.share.consumer.share_consumer",
        "sharegroup.client.share.ranges.share_ranges",
        "sharegroup.dead_letters.letter",
        "sharegroup.internal_topics.coordinator_json",
        "sharegroup.wire.internal_topics.share_state_records",
        "sharegroup.worker",
    }


def test_names_that_are_imported_at_their_first_use_are_complete():
    for name in sharegroup.spark.__all__:
        assert getattr(sharegroup.spark, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'redrives'"):
        getattr(sharegroup.spark, "redrives")  # noqa: B009  The name does not exist.


DECODING = """
import sys
from sharegroup.spark.options import read_options
from sharegroup.spark.schema import arrow_batches
from sharegroup.wire.batches.columns import record_columns

options = read_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"})
for columns in record_columns(sys.stdin.buffer.read(), headers=True):
    for rows in arrow_batches(
        columns, options, topic="orders", partition=0, delivery_counts=columns.offsets
    ):
        print(rows.num_rows)
print("pandas" in sys.modules)
"""


def test_decoding_does_not_import_pandas():
    headers = [("name", b"text")]
    batch = encode_batch([SimpleRecord(b"key", b"value", 1, headers), SimpleRecord(None, None, 2)])
    done = subprocess.run(
        [sys.executable, "-c", DECODING],
        input=batch,
        stdout=subprocess.PIPE,
        check=True,
    )
    assert done.stdout.decode().split() == ["2", "False"]
