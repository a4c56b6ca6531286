"""What lies in the topics when a trial is over: read whole, by a client that is not ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from tests.faults.worker_chaos.records import CRUNCH, DEAD, JOBS
from tests.faults.worker_chaos.stage import OWN

STORY = "__sharegroup."
READ_SECONDS = 5.0


class Copy(NamedTuple):
    """One record of one topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    number: int
    failures: int
    """Runs that had failed before it was written."""
    reason: str
    """Of a letter."""
    member: str
    """Of a letter, who wrote it; of a retry, whose run failed."""

    @property
    def place(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.offset


class Topics(NamedTuple):
    """All copies of the trial's records."""

    sources: list[Copy]
    tiers: list[Copy]
    own: list[Copy]
    letters: list[Copy]


def read_topics(bootstrap: str) -> Topics:
    """Everything, in the order of each partition."""
    copies = sorted(map(_copy, read_all(bootstrap, _is_ours)))
    return Topics(
        sources=[copy for copy in copies if copy.topic in {JOBS, CRUNCH}],
        tiers=[copy for copy in copies if copy.topic.startswith(f"{OWN}.")],
        own=[copy for copy in copies if copy.topic == OWN],
        letters=[copy for copy in copies if copy.topic == DEAD],
    )


def _is_ours(name: str) -> bool:
    return name in {JOBS, CRUNCH, OWN, DEAD} or name.startswith(f"{OWN}.")


def read_all(bootstrap: str, is_wanted: Callable[[str], bool]) -> list[Message]:
    """The committed records of these topics, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-all",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        topics = consumer.list_topics(timeout=READ_SECONDS).topics
        unread = {
            (name, partition)
            for name in filter(is_wanted, topics)
            for partition in topics[name].partitions
        }
        consumer.assign([TopicPartition(*where, 0) for where in unread])
        messages = []
        while unread:
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    messages.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unread.discard((message.topic(), message.partition()))
        return messages
    finally:
        consumer.close()


def _copy(message: Message) -> Copy:
    headers = dict(message.headers() or ())
    kind, timestamp_ms = message.timestamp()
    assert kind != TIMESTAMP_NOT_AVAILABLE

    def text(name: str) -> str:
        return headers.get(STORY + name, b"").decode()

    return Copy(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp_ms,
        int(message.key()),
        int(text("failures") or 0),
        text("dead.reason"),
        text("dead.member"),
    )
