"""Renewal, strict limits and isolation as raw requests: the same bytes on both brokers.

Released clients do not let a test choose these requests freely.  ``SHAREGROUP_INTEROP=kafka``
shows that what our broker does here is what Apache Kafka does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from kio.schema.find_coordinator.v6 import request as find_coordinator
from kio.schema.metadata.v12 import request as metadata
from kio.schema.produce.v12 import request as produce
from kio.schema.share_acknowledge.v2 import request as share_acknowledge
from kio.schema.share_fetch.v2 import request as share_fetch
from kio.schema.share_group_heartbeat.v1 import request as heartbeat
from kio.static.primitive import i8

from sharegroup.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.raw_connection import RawConnection
from tests.support.confluent_calls import WAIT_SECONDS_MAX, create_topic, set_group

ACCEPT, RELEASE, RENEW = 1, 2, 4
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
LOCK_SECONDS = 1.0
LED_SOON = (UnknownTopicOrPartition.code, NotLeaderOrFollower.code)
"""What Kafka says of a topic that it has just made."""
NOTHING = {"max_records": 0, "max_bytes": 0, "min_bytes": 0, "max_wait": timedelta(0)}

Acks = tuple[int, int, tuple[int, ...]]
"""First offset, last offset, types."""


class Acquired(NamedTuple):
    """Offsets that were acquired, the last one included."""

    first: int
    last: int
    delivery_count: int


class Member:
    """One member, with a session on partition 0 of one topic."""

    def __init__(self, connection: RawConnection, group: str, name: str, topic_id: UUID) -> None:
        self.connection = connection
        self.group = group
        self.name = name
        self.topic_id = topic_id
        self.session_epoch = 0

    def fetch(self, *acks: Acks, **fields: Any) -> Any:
        """The answer to the next ShareFetch; the first one opens the session."""
        values: dict[str, Any] = {
            "max_wait": timedelta(seconds=5),
            "min_bytes": 1,
            "max_bytes": 1 << 24,
            "max_records": 500,
            "batch_size": 500,
        }
        values |= NOTHING if self.session_epoch == 0 else fields
        partition = share_fetch.FetchPartition(
            partition_index=0, acknowledgement_batches=_batches(share_fetch, acks)
        )
        answer = self.connection.ask(
            share_fetch.ShareFetchRequest(
                group_id=self.group,
                member_id=self.name,
                share_session_epoch=self.session_epoch,
                topics=(share_fetch.FetchTopic(topic_id=self.topic_id, partitions=(partition,)),),
                forgotten_topics_data=(),
                **values,
            )
        )
        self.session_epoch += int(answer.error_code) == 0
        return answer

    def take(self, **fields: Any) -> list[Acquired]:
        """What the next fetch acquires."""
        answer = self.fetch(**fields)
        assert int(answer.error_code) == 0, answer.error_message
        partitions = [partition for topic in answer.responses for partition in topic.partitions]
        assert [int(partition.error_code) for partition in partitions] in ([], [0])
        return [
            Acquired(record.first_offset, record.last_offset, record.delivery_count)
            for partition in partitions
            for record in partition.acquired_records
        ]

    def acknowledge(self, *acks: Acks, renewing: bool = False) -> int:
        """The error code of the partition."""
        partition = share_acknowledge.AcknowledgePartition(
            partition_index=0, acknowledgement_batches=_batches(share_acknowledge, acks)
        )
        topic = share_acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=(partition,))
        answer = self.connection.ask(
            share_acknowledge.ShareAcknowledgeRequest(
                group_id=self.group,
                member_id=self.name,
                share_session_epoch=self.session_epoch,
                is_renew_ack=renewing,
                topics=(topic,),
            )
        )
        assert int(answer.error_code) == 0, answer.error_message
        assert answer.acquisition_lock_timeout == timedelta(seconds=LOCK_SECONDS)
        self.session_epoch += 1
        return int(answer.responses[0].partitions[0].error_code)

    def give_back(self, taken: list[Acquired]) -> None:
        released = tuple((range_.first, range_.last, (RELEASE,)) for range_ in taken)
        assert self.acknowledge(*released) == 0


def _batches(messages: Any, acks: tuple[Acks, ...]) -> Any:
    return tuple(
        messages.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in acks
    )


@contextmanager
def members(
    bootstrap: str, topic: str, group: str, *names: str, sizes: tuple[int, ...], limit: str = "5"
) -> Iterator[list[Member]]:
    """Members that fetch from a topic with one record batch of each of ``sizes``."""
    create_topic(bootstrap, topic)
    set_group(
        bootstrap,
        group,
        auto_offset_reset="earliest",
        record_lock_duration_ms="1000",
        delivery_count_limit=limit,
    )
    port = int(bootstrap.rpartition(":")[2])
    with RawConnection(port, seconds=WAIT_SECONDS_MAX) as connection:
        for size in sizes:
            _produce(connection, topic, size)
        wait_until_assigned(connection, group, topic, names[0])
        topic_id = _topic_id(connection, topic)
        joined = [Member(connection, group, name, topic_id) for name in names]
        for member in joined:
            member.fetch()
        yield joined


def wait_until_assigned(connection: RawConnection, group: str, topic: str, name: str) -> None:
    """Apache Kafka initialises a new group's partitions some seconds after the first heartbeat."""
    limit = time.monotonic() + WAIT_SECONDS_MAX
    epoch = 0
    while True:
        answer = connection.ask(
            heartbeat.ShareGroupHeartbeatRequest(
                group_id=group,
                member_id=name,
                member_epoch=epoch,
                rack_id=None,
                subscribed_topic_names=(topic,) if epoch == 0 else None,
            )
        )
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return
        if int(answer.error_code) != 0:  # Asking for the coordinator makes its topic.
            connection.ask(
                find_coordinator.FindCoordinatorRequest(key_type=i8(0), coordinator_keys=(group,))
            )
        epoch = answer.member_epoch
        assert time.monotonic() < limit, "no partition was assigned"
        time.sleep(0.05)


def _produce(connection: RawConnection, topic: str, size: int) -> None:
    batch = bytes(encode_batch([SimpleRecord(None, b"x", 1)] * size))
    data = produce.PartitionProduceData(index=0, records=batch)
    request = produce.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=timedelta(seconds=10),
        topic_data=(produce.TopicProduceData(name=topic, partition_data=(data,)),),
    )
    limit = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        answer = connection.ask(request).responses[0].partition_responses[0]
        if int(answer.error_code) not in LED_SOON:
            break
        assert time.monotonic() < limit, "nobody leads the partition"
    assert int(answer.error_code) == 0, answer.error_message


def _topic_id(connection: RawConnection, topic: str) -> UUID:
    request = metadata.MetadataRequest(
        topics=(metadata.MetadataRequestTopic(topic_id=None, name=topic),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    topic_id = connection.ask(request).topics[0].topic_id
    assert isinstance(topic_id, UUID)
    return topic_id


def test_renewed_lock_ends_its_whole_time_after_the_renewal(
    bootstrap: str, topic: str, group: str
) -> None:
    """Half a lock after the fetch comes the renewal: nobody gets the record a lock after the fetch.

    The pause is a fetch of the other member's that finds nothing for so long.
    """
    with members(bootstrap, topic, group, "one", "two", sizes=(1,)) as (member, two):
        assert member.take() == [Acquired(0, 0, 1)]
        half = timedelta(seconds=LOCK_SECONDS / 2)
        assert two.take(max_wait=half) == []
        renewed = time.monotonic()
        assert member.acknowledge((0, 0, (RENEW,)), renewing=True) == 0
        assert two.take() == [Acquired(0, 0, 2)]
        assert time.monotonic() - renewed >= LOCK_SECONDS


def test_fetch_that_renews_acquires_nothing(bootstrap: str, topic: str, group: str) -> None:
    with members(bootstrap, topic, group, "one", sizes=(1, 1)) as (member,):
        assert member.take(max_records=1) == [Acquired(0, 0, 1)]
        answer = member.fetch((0, 0, (RENEW,)), is_renew_ack=True, **NOTHING)
        [partition] = answer.responses[0].partitions
        assert (int(answer.error_code), int(partition.acknowledge_error_code)) == (0, 0)
        assert partition.acquired_records == ()
        assert member.take() == [Acquired(1, 1, 1)]


@pytest.mark.parametrize("field", ["max_bytes", "min_bytes", "max_records", "max_wait"])
def test_fetch_with_renewals_and_non_zero_limits_is_refused(
    bootstrap: str, topic: str, group: str, field: str
) -> None:
    with members(bootstrap, topic, group, "one", sizes=(1,)) as (member,):
        something = timedelta(milliseconds=1) if field == "max_wait" else 1
        answer = member.fetch(is_renew_ack=True, **(NOTHING | {field: something}))
        assert int(answer.error_code) == 42
        assert member.take() == [Acquired(0, 0, 1)]


def test_renewal_without_is_renew_ack_is_refused(bootstrap: str, topic: str, group: str) -> None:
    with members(bootstrap, topic, group, "one", sizes=(2,)) as (member,):
        assert member.take() == [Acquired(0, 1, 1)]
        assert member.acknowledge((0, 1, (ACCEPT, RENEW))) == 42
        assert member.acknowledge((0, 1, (ACCEPT, RENEW)), renewing=True) == 0
        assert member.acknowledge((1, 1, (ACCEPT,)), renewing=True) == 0


def test_renewal_that_the_group_forbids_is_refused(bootstrap: str, topic: str, group: str) -> None:
    with members(bootstrap, topic, group, "one", sizes=(1,)) as (member,):
        set_group(bootstrap, group, renew_acknowledge_enable="false")
        assert member.take() == [Acquired(0, 0, 1)]
        assert member.acknowledge((0, 0, (RENEW,)), renewing=True) == 121
        assert member.acknowledge((0, 0, (ACCEPT,))) == 0


def test_record_limit_is_exact_within_a_batch(bootstrap: str, topic: str, group: str) -> None:
    with members(bootstrap, topic, group, "one", sizes=(100,)) as (member,):
        strict = {"share_acquire_mode": RECORD_LIMIT, "max_records": 30, "batch_size": 10}
        assert member.take(**strict) == [Acquired(0, 29, 1)]
        assert member.take(**strict) == [Acquired(30, 59, 1)]
        member.give_back([Acquired(10, 19, 1)])
        assert member.take(**strict) == [Acquired(10, 19, 2), Acquired(60, 79, 1)]


def test_batch_optimized_finishes_its_batch_and_cuts_at_batches(
    bootstrap: str, topic: str, group: str
) -> None:
    with members(bootstrap, topic, group, "one", sizes=(10, 10, 10, 10)) as (member,):
        assert member.take(max_records=25, batch_size=15) == [
            Acquired(0, 19, 1),
            Acquired(20, 29, 1),
        ]


@pytest.mark.parametrize(
    ("limit", "size", "expected"),
    [
        ("2", 50, [50, 50]),
        ("3", 50, [50, 50, 1, 1]),
        ("5", 100, [100, 100, 100, 50, 1, 1]),
        ("6", 100, [100, 100, 100, 50, 25, 1, 1]),
        ("10", 512, [512, 512, 512, 512, 512, 256, 128, 64, 32, 1, 1]),
    ],
)
def test_redelivered_batch_is_divided_into_ever_smaller_portions(
    bootstrap: str, topic: str, group: str, limit: str, size: int, expected: list[int]
) -> None:
    with members(bootstrap, topic, group, "one", sizes=(size,), limit=limit) as (member,):
        seen = []
        for _ in expected:
            taken = member.take()
            seen.append(sum(range_.last - range_.first + 1 for range_ in taken))
            member.give_back(taken)
        assert seen == expected
