"""Topics, groups and settings of a trial, and how its processes are told about it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from tests.faults.worker_chaos.journal import Journal
from tests.integration.spark.kills.pipeline import GROUP as SPARK_GROUP, TOPIC as SPARK_TOPIC

PLAIN, READERS = "plain", "readers"
PLAIN_PARTITIONS, SPARK_PARTITIONS = 8, 3
GROUPS = (READERS, SPARK_GROUP)
TOPICS = {PLAIN: PLAIN_PARTITIONS, SPARK_TOPIC: SPARK_PARTITIONS}
DELIVERIES_MAX = 10
"""Kafka's own limit.  Each fault may cost a delivery, and after the last one a record is gone."""
LOCK_SECONDS = 10
SETTINGS = {
    "num.partitions": "4",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.session.timeout.ms": "6000",
    "group.share.record.lock.duration.ms": str(LOCK_SECONDS * 1000),
    "group.share.delivery.count.limit": str(DELIVERIES_MAX),
}
"""What a member that was killed leaves behind is over soon."""

OURS, CONFLUENT = "producer-ours", "producer-confluent"
CONSUMERS = {"async": ("async-commit", "async-window"), "sync": ("sync-commit", "sync-implicit")}
"""Processes with consumers, and their members."""
WORKERS = ("worker-0", "worker-1")
SPARK = "spark"


def journal(folder: Path, component: str) -> Journal:
    """The journal of a component in the calling process."""
    where = folder / "journals" / component
    where.mkdir(parents=True, exist_ok=True)
    return Journal(where)


def stopping() -> threading.Event:
    """Set by SIGTERM."""
    event = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: event.set())
    return event
