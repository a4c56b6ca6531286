"""Consumers of five libraries behind one face: members of a consumer group, as tests need them.

Each is the library's own consumer with its own threads, heartbeats and assignor; what differs is
only how it is called.  The Java client and franz-go run in processes of their own:
`java/Member.java` and `go/member/member.go`.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka.errors import KafkaConnectionError

SESSION_MS = 6_000
HEARTBEAT_MS = 500
WAIT_SECONDS_MAX = 30.0
POLL_MS = 100


class ClientFailed(Exception):
    """A client's call failed; the text is the client's description of the error."""


class Got(NamedTuple):
    """A record that a member was given."""

    partition: int
    offset: int
    value: bytes


class GroupMember(Protocol):
    """One consumer with a subscription; it commits when told to."""

    def poll(self) -> list[Got]: ...

    def commit(self) -> None: ...

    def partitions(self) -> set[int]: ...

    def close(self) -> None:
        """Leave the group, if it has not left before."""
        ...


class AnnotatingMember(GroupMember, Protocol):
    """A member that commits its positions with metadata, and fetches what the group committed."""

    def commit(self, metadata: str = "") -> None: ...

    def committed(self) -> dict[int, tuple[int, str]]:
        """The committed offset and its metadata, by partition."""
        ...


class ConfluentMember:
    """confluent-kafka (librdkafka)."""

    protocol: Mapping[str, Any] = {
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }

    def __init__(self, bootstrap: str, topic: str, group: str, instance: str | None = None) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            **self.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        if instance is not None:
            config["group.instance.id"] = instance
        self._consumer = Consumer(config)
        self._consumer.subscribe([topic])
        self._is_closed = False

    def poll(self) -> list[Got]:
        messages = self._consumer.consume(100, POLL_MS / 1000)
        return [
            Got(message.partition(), message.offset(), message.value())
            for message in messages
            if not message.error()
        ]

    def commit(self, metadata: str = "") -> None:
        if not metadata:
            self._consumer.commit(asynchronous=False)
            return
        offsets = [
            TopicPartition(found.topic, found.partition, found.offset, metadata)
            for found in self._consumer.position(self._consumer.assignment())
        ]
        self._consumer.commit(offsets=offsets, asynchronous=False)

    def committed(self) -> dict[int, tuple[int, str]]:
        found = self._consumer.committed(self._consumer.assignment(), WAIT_SECONDS_MAX)
        return {offset.partition: (offset.offset, offset.metadata) for offset in found}

    def partitions(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._consumer.close()


class ConsumerProtocolMember(ConfluentMember):
    """confluent-kafka with the protocol of KIP-848, in which the group has the times."""

    protocol: Mapping[str, Any] = {"group.protocol": "consumer"}


class KafkaPythonMember:
    """kafka-python, in a thread of its own: a poll that ends while it joins can leave it stuck."""

    def __init__(self, bootstrap: str, topic: str, group: str, instance: str | None = None) -> None:
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            reconnect_backoff_max_ms=500,
        )
        self._got: queue.SimpleQueue[Got] = queue.SimpleQueue()
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._goes_on = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._goes_on:
            with contextlib.suppress(KafkaConnectionError):  # While the broker is down.
                for batch in self._consumer.poll(timeout_ms=1_000).values():
                    for record in batch:
                        self._got.put(Got(record.partition, record.offset, record.value))
            while not self._work.empty():
                self._work.get()()
        self._consumer.close()

    def poll(self) -> list[Got]:
        deadline = time.monotonic() + POLL_MS / 1000
        got: list[Got] = []
        while not got and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                got.append(self._got.get(timeout=POLL_MS / 1000))
        while not self._got.empty():
            got.append(self._got.get())
        return got

    def commit(self) -> None:
        done = threading.Event()
        self._work.put(lambda: (self._consumer.commit(), done.set())[1])
        assert done.wait(WAIT_SECONDS_MAX)

    def partitions(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def close(self) -> None:
        self._goes_on = False
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive()


class AiokafkaMember:
    """aiokafka, on an event loop in a thread of its own, as its heartbeats need one that runs."""

    def __init__(self, bootstrap: str, topic: str, group: str, instance: str | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._consumer: AIOKafkaConsumer = self._do(self._make(bootstrap, topic, group, instance))

    @staticmethod
    async def _make(
        bootstrap: str, topic: str, group: str, instance: str | None
    ) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        return consumer

    def poll(self) -> list[Got]:
        found = self._do(self._consumer.getmany(timeout_ms=POLL_MS))
        return [
            Got(record.partition, record.offset, record.value)
            for batch in found.values()
            for record in batch
        ]

    def commit(self) -> None:
        self._do(self._consumer.commit())

    def partitions(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def close(self) -> None:
        if self._loop.is_closed():
            return
        try:
            self._do(self._consumer.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(WAIT_SECONDS_MAX)
            self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS_MAX)


class LineMember:
    """A member in a program of `tests.interop.line_programs`, which has any number of them."""

    def __init__(
        self,
        program: subprocess.Popen[str],
        name: str,
        topic: str,
        group: str,
        *,
        protocol: str,
        instance: str | None = None,
    ) -> None:
        self._program = program
        self._name = name
        self._is_closed = False
        self._command("open", topic, group, protocol, instance or "")

    def poll(self) -> list[Got]:
        found = []
        for word in self._command("poll"):
            partition, offset, value = word.split(":", 2)
            found.append(Got(int(partition), int(offset), value.encode()))
        return found

    def commit(self, metadata: str = "") -> None:
        self._command("commit", metadata)

    def committed(self) -> dict[int, tuple[int, str]]:
        found = {}
        for word in self._command("committed"):
            partition, offset, metadata = word.split(":", 2)
            found[int(partition)] = (int(offset), metadata)
        return found

    def partitions(self) -> set[int]:
        return set(map(int, self._command("partitions")))

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._command("close")

    def _command(self, *words: str) -> list[str]:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write("\t".join((self._name, *words)) + "\n")
        self._program.stdin.flush()
        outcome, *answer = self._program.stdout.readline().rstrip("\n").split("\t")
        if outcome == "error":
            raise ClientFailed(f"{words} of {self._name}: {answer[0]}")
        assert outcome == "ok", f"{words} of {self._name}: {outcome!r} {answer}"
        return answer


def poll_until(
    done: Callable[[], bool], *members: GroupMember, seconds: float = WAIT_SECONDS_MAX
) -> list[Got]:
    """What the members got while they were polled in turn until ``done()``."""
    deadline = time.monotonic() + seconds
    got: list[Got] = []
    while not done():
        assert time.monotonic() < deadline, (
            f"after {seconds} s: {[m.partitions() for m in members]}"
        )
        for member in members:
            got += member.poll()
    return got


def read(count: int, *members: GroupMember) -> list[Got]:
    """At least so many records that the members got."""
    got: list[Got] = []
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(got) < count:
        assert time.monotonic() < deadline, f"{len(got)} of {count} records"
        for member in members:
            got += member.poll()
    return got
