"""What is written when a record is postponed, and which topics that needs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from sharegroup.dead_letters.story import Attempt, RecordOrigin, Story
from sharegroup.dead_letters.story_headers import own_headers, story_of
from sharegroup.testing import virtual_time
from sharegroup.worker.declarations.handler import HandlerKind, HandlerShape
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.ports import Header
from sharegroup.worker.retrying.postponer import Postponer, retry_topics
from sharegroup.worker.retrying.waiting import Moment
from tests.unit.worker.retrying.cluster import START_MS, TIERS, Cluster, Lying, Outbox

FAILED = Attempt(1, START_MS, "builtins.TimeoutError", "slow", "m")


@dataclass
class Delivery:
    topic: str = "orders"
    partition: int = 3
    offset: int = 77
    timestamp_ms: int = 1_700_000_000_000
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: tuple[Header, ...] = (("a", b"\xff"), ("a", None))
    delivery_count: int = 1
    deadline: float = 0.0


def postponed(story: Story, delivery: Delivery, *, shrunk: bool = False) -> Lying:
    async def run() -> Lying:
        cluster = Cluster()
        postponer = Postponer(Outbox(cluster), cluster.clock, "g", TIERS)
        now = Moment.now(cluster.clock)
        written = await postponer.postpone(delivery, story, now, shrunk=shrunk)
        assert isinstance(written, Lying)
        await asyncio.sleep(1)
        return written

    return virtual_time.run(run())


def test_first_retry_carries_the_place_of_the_original() -> None:
    story = Story(failures=1, attempts=(FAILED,), due_ms=START_MS + 30_000)
    lying = postponed(story, Delivery())
    assert lying.topic == "g.retry.30s"
    assert (lying.key, lying.value) == (b"k", b"v")
    assert own_headers(lying.headers) == (("a", b"\xff"), ("a", None))
    assert lying.headers[:2] == (("a", b"\xff"), ("a", None)), "the application's come first"
    assert story_of(lying.headers) == replace(
        story, origin=RecordOrigin("orders", 3, 77, 1_700_000_000_000)
    )
    assert lying.headers[-2:] == (
        ("__sharegroup.delay", b"30000"),
        ("__sharegroup.written", b"%d" % START_MS),
    )


def test_later_retry_keeps_the_first_origin_and_has_each_header_once() -> None:
    origin = RecordOrigin("orders", 3, 77, 1_700_000_000_000)
    first = postponed(Story(origin, 1, (FAILED,), START_MS + 5_000), Delivery())
    again = Delivery("g.retry", 0, 4, START_MS, headers=first.headers)
    second = postponed(Story(origin, 2, (FAILED, FAILED), START_MS + 2_000), again)
    assert second.topic == "g.retry.due"
    assert story_of(second.headers) == Story(origin, 2, (FAILED, FAILED), START_MS + 2_000)
    names = [name for name, _ in second.headers if name.startswith("__sharegroup.")]
    assert len(names) == len(set(names))


def test_shrunk_record_keeps_its_count_of_failures() -> None:
    story = Story(failures=7, attempts=(FAILED,) * 7, due_ms=START_MS + 30_000)
    lying = postponed(story, Delivery(), shrunk=True)
    assert story_of(lying.headers).failures == 7
    assert story_of(lying.headers).attempts == ()


def test_record_that_is_already_due_is_written_to_the_retry_topic() -> None:
    assert postponed(Story(due_ms=START_MS - 1), Delivery()).topic == "g.retry"


async def handle(payload: bytes) -> None: ...


SHAPE = HandlerShape("handle", handle, HandlerKind.COROUTINE, bytes, False, False)


def test_retention_of_retry_topics_is_the_delay_and_two_weeks() -> None:
    route = Route(group="g", topics=("orders",), shape=SHAPE, retry_tiers=(5.0, 3_600.0))
    topics = {topic.name: topic for topic in retry_topics(route)}
    assert sorted(topics) == ["g.retry", "g.retry.1h", "g.retry.5s", "g.retry.due"]
    assert dict(topics["g.retry.1h"].configs) == {
        "cleanup.policy": "delete",
        "max.message.bytes": "16777216",
        "message.timestamp.type": "LogAppendTime",
        "retention.bytes": "-1",
        "retention.ms": str((1 + 14 * 24) * 3_600_000),
    }
    assert {topic.partitions for topic in topics.values()} == {2}


def test_steered_group_has_a_control_topic_that_outlives_its_records() -> None:
    route = Route(
        group="g", topics=("orders",), shape=SHAPE, retry_tiers=(5.0, 3_600.0), steering=True
    )
    (control,) = [topic for topic in retry_topics(route) if topic.name == "g.retry.control"]
    assert control.partitions == 1
    assert dict(control.configs) == {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.1",
        "min.compaction.lag.ms": "3600000",
        "retention.ms": str((1 + 2 * 14 * 24) * 3_600_000),
        "segment.bytes": "16777216",
    }


def test_route_without_retries_needs_only_its_retry_topic() -> None:
    route = Route(group="g", topics=("orders",), shape=SHAPE, retry=None)
    assert [topic.name for topic in retry_topics(route)] == ["g.retry"]
