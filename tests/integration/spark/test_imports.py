"""What is missing is said with what to install; what Spark looks for is where it looks."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pyspark_sharegroup
from sharegroup.spark import KafkaShareDataSource


@pytest.mark.parametrize(
    ("missing", "module", "message"),
    [
        ("pyspark", "sharegroup.spark", "needs PySpark, pip install 'sharegroup[spark]'"),
        ("pyarrow", "sharegroup.wire.columns", "pip install 'sharegroup[arrow]'"),
        ("numpy", "sharegroup.wire.columns", "pip install 'sharegroup[arrow]'"),
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


def test_executor_loads_the_plain_fetch_and_no_other_client():
    code = "import sys, sharegroup.spark.executor_read; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    loaded = set(done.stdout.decode().split())
    assert "sharegroup.client.fetch.range_fetch" in loaded
    assert not loaded & {
        "sharegroup.client.fetch.record_reading",
        "sharegroup.client.group.membership",
        "sharegroup.client.produce.producer",
        "sharegroup.client.share.share_consumer",
        "sharegroup.client.share_ranges.share_ranges",
        "sharegroup.dead_letters.letter",
        "sharegroup.internal_topics.coordinator_json",
        "sharegroup.wire.share_state_records",
        "sharegroup.worker",
    }
