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
        names = consumer.list_topics(timeout=READ_SECONDS).topics
        copies = [one for name in names if _is_ours(name) for one in _read(consumer, name)]
    finally:
        consumer.close()
    return Topics(
        sources=[one for one in copies if one.topic in {JOBS, CRUNCH}],
        tiers=[one for one in copies if one.topic.startswith(f"{OWN}.")],
        own=[one for one in copies if one.topic == OWN],
        letters=[one for one in copies if one.topic == DEAD],
    )


def _is_ours(name: str) -> bool:
    return name in {JOBS, CRUNCH, OWN, DEAD} or name.startswith(f"{OWN}.")


def _read(consumer: Consumer, topic: str) -> Iterator[Copy]:
    partitions = consumer.list_topics(topic, timeout=READ_SECONDS).topics[topic].partitions
    for partition in partitions:
        where = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(where, timeout=READ_SECONDS)
        consumer.assign([where])
        position = 0
        while position < end:
            messages = consumer.consume(min(end - position, 10_000), READ_SECONDS)
            assert messages, f"{topic} {partition}: nothing at offset {position}, expected {end}"
            for message in messages:
                assert message.error() is None, message.error()
                position = message.offset() + 1
                yield _copy(message)


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
