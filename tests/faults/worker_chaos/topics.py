"""What lies in the topics when a trial is over: read whole, by a client that is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

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
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reads-all"})
    try:
        copies = sorted(_read_all(consumer))
    finally:
        consumer.close()
    return Topics(
        sources=[copy for copy in copies if copy.topic in {JOBS, CRUNCH}],
        tiers=[copy for copy in copies if copy.topic.startswith(f"{OWN}.")],
        own=[copy for copy in copies if copy.topic == OWN],
        letters=[copy for copy in copies if copy.topic == DEAD],
    )


def _is_ours(name: str) -> bool:
    return name in {JOBS, CRUNCH, OWN, DEAD} or name.startswith(f"{OWN}.")


def _read_all(consumer: Consumer) -> Iterator[Copy]:
    topics = consumer.list_topics(timeout=READ_SECONDS).topics
    ends = {}
    for name in filter(_is_ours, topics):
        for partition in topics[name].partitions:
            where = TopicPartition(name, partition, 0)
            _, end = consumer.get_watermark_offsets(where, timeout=READ_SECONDS)
            if end:
                ends[name, partition] = end
    consumer.assign([TopicPartition(*where, 0) for where in ends])
    while ends:
        messages = consumer.consume(10_000, 0.2)
        for message in messages:
            assert message.error() is None, message.error()
            copy = _copy(message)
            yield copy
            if ends.get((copy.topic, copy.partition)) == copy.offset + 1:
                del ends[copy.topic, copy.partition]


def _copy(message: object) -> Copy:
    headers = dict(message.headers() or ())  # type: ignore[attr-defined]
    kind, timestamp_ms = message.timestamp()  # type: ignore[attr-defined]
    assert kind != TIMESTAMP_NOT_AVAILABLE

    def text(name: str) -> str:
        return headers.get(STORY + name, b"").decode()

    return Copy(
        message.topic(),  # type: ignore[attr-defined]
        message.partition(),  # type: ignore[attr-defined]
        message.offset(),  # type: ignore[attr-defined]
        timestamp_ms,
        int(message.key()),  # type: ignore[attr-defined]
        int(text("failures") or 0),
        text("dead.reason"),
        text("dead.member"),
    )
