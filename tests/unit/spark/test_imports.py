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
