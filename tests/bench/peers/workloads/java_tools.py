"""Kafka's own performance tools, each run in a virtual machine of its own.

`ShareConsumerPerformance` counts from before it subscribes, so what it reports of a new group is
mostly the five seconds that Kafka takes to let it in.  Its detailed statistics say when the
first records came to each consumer and how many had come by then; the rate here is of what came
after.
"""

from __future__ import annotations

import datetime as dt
import re
import resource
import subprocess
from typing import Any

from tests.bench.failure import BenchError
from tests.bench.peers.brokers import Broker
from tests.support.kafka_peer import java
from tests.support.kafka_tools import SCRIPTS, tool_libs
from tests.support.processes import cpu_seconds

CONSUME = SCRIPTS["kafka-share-consumer-perf-test"]
CONSUME_PLAIN = SCRIPTS["kafka-consumer-perf-test"]
PRODUCE = SCRIPTS["kafka-producer-perf-test"]
IDLE_MS_MAX = 30_000
REPORT_MS = 50
HEAP = "-Xmx512m"
"""As the scripts of Kafka's distribution run these tools; nothing else is set."""
TOOL_SECONDS_MAX = 300.0
TIME_FORMAT = "%Y-%m-%d %H:%M:%S:%f"

_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
_PROGRESS = re.compile(
    rf"({_TIME}), ({_TIME}), [\d.]+, [\d.]+, [\d.]+, (\d+), \d+ for share consumer"
    rf" (\d+?)(?={_TIME}|\D|\Z)"
)
"""The tool prints a line and its end in two steps, and its consumers are threads: behind a
consumer's number there may be the next line's year."""
_TOTAL = re.compile(rf"({_TIME}), ({_TIME}), [\d.]+, [\d.]+, [\d.]+, (\d+), (\d+)$", re.MULTILINE)
_SENT = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")


def share_consume(
    broker: Broker, group: str, topic: str, records: int, *, consumers: int = 1
) -> dict[str, Any]:
    """Take every record with so many consumers: how many counted, in how many seconds."""
    printed, cpu = _run(
        broker,
        CONSUME,
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group", group),
        *("--num-records", str(records), "--threads", str(consumers)),
        *("--timeout", str(IDLE_MS_MAX), "--hide-header"),
        *("--show-detailed-stats", "--reporting-interval", str(REPORT_MS)),
    )
    return {**after_the_join(printed, records), **cpu}


def after_the_join(printed: str, records: int) -> dict[str, Any]:
    """What came after every consumer that got records had its first, and how long that took."""
    total = _TOTAL.search(printed)
    if total is None or int(total[3]) != records or "WARNING" in printed:
        raise BenchError(f"expected {records} records, the tool says {printed[-500:]!r}")
    reports = [
        (int(consumer), _time(end), int(count))
        for _, end, count, consumer in _PROGRESS.findall(printed)
    ]
    if not reports:
        raise BenchError(f"{records} records came within {REPORT_MS} ms: too few to measure")
    first_of = {consumer: end for consumer, end, _ in reversed(reports)}
    begin = max(first_of.values())
    before = {consumer: count for consumer, end, count in reports if end <= begin}
    seconds = (_time(total[2]) - begin).total_seconds()
    counted = records - sum(before.values())
    if counted < records / 2 or seconds <= 0:
        raise BenchError(f"{counted} of {records} records after the join: too few to measure")
    return {"counted": counted, "seconds": seconds}


def consume(broker: Broker, group: str, topic: str, records: int) -> dict[str, Any]:
    """Read every record in a consumer group; the tool tells the time without the join."""
    printed, cpu = _run(
        broker,
        CONSUME_PLAIN,
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group", group),
        *("--num-records", str(records), "--timeout", str(IDLE_MS_MAX), "--hide-header"),
    )
    # start, end, MB, MB/s, records, records/s, join ms, fetch ms, fetch MB/s, fetch records/s
    values = [value.strip() for value in printed.strip().splitlines()[-1].split(",")]
    if len(values) != 10 or int(values[4]) < records:
        raise BenchError(f"expected {records} records, the tool says {printed[-500:]!r}")
    return {"counted": int(values[4]), "seconds": int(values[7]) / 1000, **cpu}


def first_record(broker: Broker, group: str, topic: str) -> dict[str, Any]:
    """Seconds from subscribe to the first record."""
    printed, cpu = _run(
        broker,
        CONSUME,
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group", group),
        *("--num-records", "1", "--timeout", str(IDLE_MS_MAX), "--hide-header"),
    )
    total = _TOTAL.search(printed)
    if total is None or int(total[3]) != 1:
        raise BenchError(f"expected 1 record, the tool says {printed[-500:]!r}")
    return {"seconds": int(total[4]) / 1000, **cpu}


def produce(broker: Broker, topic: str, records: int, record_bytes: int) -> dict[str, Any]:
    """Records per second, as the tool says."""
    printed, cpu = _run(
        broker,
        PRODUCE,
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(records), "--record-size", str(record_bytes)),
        *("--command-property", "acks=all", "linger.ms=5"),
    )
    sent = _SENT.findall(printed)
    if not sent or int(sent[-1][0]) != records:
        raise BenchError(f"expected {records} records sent, the tool says {printed[-500:]!r}")
    return {"counted": records, "seconds": records / float(sent[-1][1]), **cpu}


def _run(broker: Broker, main_class: str, *arguments: str) -> tuple[str, dict[str, float]]:
    """What the tool printed; the CPU of its whole life, and of the broker's meanwhile."""
    broker_cpu_s, client_cpu_s = cpu_seconds(broker.pid), _children_cpu_seconds()
    executable = java()
    if executable is None:
        raise BenchError("no Java: neither JAVA_HOME nor a java on the PATH")
    done = subprocess.run(
        [executable, HEAP, "-cp", f"{tool_libs()}/*", main_class, *arguments],
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
    )
    if done.returncode:
        raise BenchError(f"{main_class} ended with {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout, {
        "broker_cpu_s": cpu_seconds(broker.pid) - broker_cpu_s,
        "client_cpu_s": _children_cpu_seconds() - client_cpu_s,
    }


def _children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _time(text: str) -> dt.datetime:
    return dt.datetime.strptime(text, TIME_FORMAT).replace(tzinfo=dt.UTC)
