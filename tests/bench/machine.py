"""What a figure must be read with: the machine, the versions, the commit, the day."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import confluent_kafka

from tests.bench.spark_process import RIVAL_VERSION
from tests.support.kafka_peer import KAFKA_VERSION, installed_libs, java
from tests.support.kafka_tools import TOOLS_VERSION


def machine() -> dict[str, str]:
    """Names and values for the head of the report, as text."""
    return {
        "processor": f"{os.cpu_count()} x {_first('/proc/cpuinfo', 'model name')}",
        "memory": f"{int(_first('/proc/meminfo', 'MemTotal').split()[0]) / 1024**2:.0f} GiB",
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka": confluent_kafka.libversion()[0],
        "Apache Kafka": f"{_kafka_version()}, heap 1 GiB, G1",
        "Kafka's performance tools": TOOLS_VERSION,
        "Spark": f"PySpark {version('pyspark')} kafka-share, Spark {RIVAL_VERSION} kafka; "
        "both local[2], heap 2 GiB",
        "Java": _java_version(),
    }


def commit(root: Path) -> str:
    """The short hash of the checkout, with a mark when files differ from it."""
    try:
        shown = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "not in git"
    return shown.stdout.strip()


def today() -> str:
    return dt.datetime.now(dt.UTC).date().isoformat()


def _kafka_version() -> str:
    """Of the installation that `KAFKA_HOME` names; without it, of the jars that are fetched."""
    libs = installed_libs()
    if libs is None:
        return KAFKA_VERSION
    return next(libs.glob("kafka_2.13-*.jar")).stem.removeprefix("kafka_2.13-")


def _java_version() -> str:
    executable = java()
    if executable is None:
        return "none"
    shown = subprocess.run([executable, "-version"], capture_output=True, text=True, check=True)
    return shown.stderr.splitlines()[0]


def _first(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"
