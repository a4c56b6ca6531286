"""A distributed worker of Kafka Connect copies a file to a topic and the topic to another file.

The worker keeps its settings, offsets and states in topics that it creates, and joins two groups.
With ``exactly.once.source.support`` it writes each batch of the source and its position in the file
in one transaction, so that a kill of the worker repeats no line in the topic.  A file sink commits
its offsets later than it writes: after a kill it repeats lines, and loses none.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.support import confluent_calls
from tests.support.chosen_broker import LONG_WITH_A_JVM, RunningBroker, chosen, running
from tests.support.confluent_calls import admin, create_topic
from tests.support.kafka_applications import Application, connect_command, why_missing
from tests.support.kafka_peer import free_ports
from tests.support.limits import HANGING_SECONDS

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(why_missing() is not None, reason=str(why_missing())),
]
TOPIC = "lines"
STARTED_SECONDS_MAX = 90.0
COPIED_SECONDS_MAX = 120.0
INTERNAL = {"connect-configs": 1, "connect-offsets": 25, "connect-status": 5}
"""The topics of a worker, and the partitions that it gives them."""


class Worker:
    """A worker process with its REST interface; `start` after `kill` is its successor."""

    def __init__(self, broker: RunningBroker, folder: Path, *, exactly_once: bool) -> None:
        (self.port,) = free_ports(1)
        self._log = folder / "connect.log"
        self._settings = folder / "connect.properties"
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "connect",
            "exactly.once.source.support": "enabled" if exactly_once else "disabled",
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "500",
            # A killed worker is noticed sooner, and its tasks are given to its successor at once.
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "consumer.session.timeout.ms": "6000",
        }
        for part in ("key", "value"):
            settings[f"{part}.converter"] = "org.apache.kafka.connect.storage.StringConverter"
        for part in ("config", "offset", "status"):
            settings[f"{part}.storage.topic"] = f"connect-{part}{'' if part == 'status' else 's'}"
            settings[f"{part}.storage.replication.factor"] = "1"
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._settings.write_text(text)
        self.process = self.start()

    def start(self) -> Application:
        self.process = Application(connect_command(self._settings), self._log)
        self.wait_until(STARTED_SECONDS_MAX, self._answers, "an answer of the worker")
        return self.process

    def create(self, name: str, connector: str, **settings: str) -> None:
        """Create a connector, as with ``POST /connectors``."""
        config = {
            "connector.class": f"org.apache.kafka.connect.file.{connector}",
            "tasks.max": "1",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.ask("/connectors", {"name": name, "config": config})

    def states(self, *names: str) -> list[str]:
        """The states of the only tasks of connectors."""
        return [
            task["state"]
            for name in names
            for task in self.ask(f"/connectors/{name}/status")["tasks"]
        ]

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=STARTED_SECONDS_MAX) as answer:
            return json.load(answer)

    def wait_until(self, seconds: float, is_so: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + seconds
        while not is_so():
            assert self.process.running, self.process.log_tail()
            assert time.monotonic() < limit, f"no {what}: {self.process.log_tail()}"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            self.ask("/connectors")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


def text(first: int, end: int) -> list[str]:
    return [f"line {number} of the file" for number in range(first, end)]


def append(path: Path, lines: Sequence[str]) -> None:
    with open(path, "a") as file:
        file.writelines(f"{line}\n" for line in lines)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def committed(bootstrap: str) -> list[str]:
    """The committed records of the topic, to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    values: list[str] = []
    try:
        while (message := consumer.poll(COPIED_SECONDS_MAX)) is not None:
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return values
            values.append(message.value().decode())
        raise AssertionError(f"no end of the topic after {len(values)} records")
    finally:
        consumer.close()


def copied(worker: Worker, sink: Path, count: int) -> None:
    """Return when the sink has so many different lines."""
    worker.wait_until(
        COPIED_SECONDS_MAX, lambda: len(set(lines_of(sink))) >= count, f"{count} lines in the sink"
    )


def connect_files(worker: Worker, folder: Path) -> None:
    worker.create("from-file", "FileStreamSourceConnector", file=f"{folder}/source", topic=TOPIC)
    worker.create("to-file", "FileStreamSinkConnector", file=f"{folder}/sink", topics=TOPIC)


@LONG_WITH_A_JVM
def test_connect_copies_a_file_through_a_topic(tmp_path: Path) -> None:
    append(tmp_path / "source", text(0, 500))
    with running(chosen(), tmp_path / "broker", {}) as broker:
        create_topic(broker.bootstrap_servers, TOPIC)
        worker = Worker(broker, tmp_path, exactly_once=True)
        with worker.process as process:
            connect_files(worker, tmp_path)
            copied(worker, tmp_path / "sink", 500)
            assert worker.states("from-file", "to-file") == ["RUNNING", "RUNNING"]
            process.stop()
        assert lines_of(tmp_path / "sink") == text(0, 500)
        assert committed(broker.bootstrap_servers) == text(0, 500)
        topics = admin(broker.bootstrap_servers).list_topics(timeout=HANGING_SECONDS).topics
        assert {name: len(topics[name].partitions) for name in INTERNAL} == INTERNAL
        confluent_calls.admin.cache_clear()


@LONG_WITH_A_JVM
@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
def test_connect_goes_on_after_kills(tmp_path: Path, exactly_once: bool) -> None:
    """The worker is killed in the middle of a file, and the broker in the rest of it.

    With exactly once this may take a minute more: a worker begins when it has read its offsets, and
    an open transaction of its killed predecessor is in the way until its time-out.
    """
    count = 60_000
    source, sink = tmp_path / "source", tmp_path / "sink"
    append(source, text(0, count))
    with running(chosen(), tmp_path / "broker", {}) as broker:
        create_topic(broker.bootstrap_servers, TOPIC)
        worker = Worker(broker, tmp_path, exactly_once=exactly_once)
        with worker.process as process:
            connect_files(worker, tmp_path)
            copied(worker, sink, 2_000)
            process.kill()
        in_the_middle = len(set(lines_of(sink)))
        with worker.start() as process:
            copied(worker, sink, count)
            append(source, text(count, 2 * count))
            copied(worker, sink, count + 1)
            broker.kill()
            broker.start()
            copied(worker, sink, 2 * count)
        assert in_the_middle < count, "the worker was killed too late"
        assert set(lines_of(sink)) == set(text(0, 2 * count))
        values = committed(broker.bootstrap_servers)
        if exactly_once:
            assert values == text(0, 2 * count)
        else:
            assert sorted(set(values)) == sorted(text(0, 2 * count))
        confluent_calls.admin.cache_clear()
