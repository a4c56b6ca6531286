"""OffsetCommit, OffsetFetch and TxnOffsetCommit name topics by id: unknown, former, repeated ids.

The errors are those of Kafka's ``KafkaApis``: UNKNOWN_TOPIC_ID for an id that no topic has,
TOPIC_AUTHORIZATION_FAILED for a topic that the user may not use.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.offset_commit.v10 import request as offset_commit
from kio.schema.offset_fetch.v9 import request as offset_fetch_by_name
from kio.schema.offset_fetch.v10 import request as offset_fetch

from sharegroup.broker.access.peer import Peer
from sharegroup.core.groups.classic.classic_groups import Committer
from sharegroup.core.groups.classic.records import OffsetAndMetadata, OffsetCommit
from sharegroup.ids import GroupId, MemberId, TopicId, TopicName
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.messages import txn_offset_commit_v6 as txn_offset_commit
from tests.authorization.in_process import ModelRights
from tests.authorization.matrix import Acl
from tests.faults.in_process import Broker
from tests.integration.broker.consumer_group_requests import RawMember

NONE, TOPIC_AUTHORIZATION_FAILED = 0, 29
UNKNOWN_TOPIC_ID, UNSTABLE_OFFSET_COMMIT = 100, 88
GROUP = "g"

Commit = Callable[..., Awaitable[list[int]]]


def with_broker(scenario: Callable[[Broker], Awaitable[None]]) -> None:
    """Run a scenario on a broker with the topics ``orders`` and ``hidden``, of two partitions."""

    async def run() -> None:
        broker = await Broker.start(PowerLossDisk(1), transaction_state_log_num_partitions="1")
        for name in ("orders", "hidden"):
            await broker.create_topic(name, 2)
        await scenario(broker)
        await broker.stop()

    asyncio.run(run())


def user(*allowed: tuple[AclResourceType, str, AclOperation]) -> Peer:
    """Return a peer that has only these rights."""
    acls = [
        Acl(kind, name, AclPatternType.LITERAL, "User:ann", "*", operation, AclPermission.ALLOW)
        for kind, name, operation in allowed
    ]
    peer = Peer("127.0.0.1")
    peer.rights = ModelRights(acls, "ann", Counter())
    return peer


ANN = (
    (AclResourceType.GROUP, GROUP, AclOperation.READ),
    (AclResourceType.TOPIC, "orders", AclOperation.READ),
    (AclResourceType.TRANSACTIONAL_ID, "t", AclOperation.WRITE),
)


async def commit(broker: Broker, *topic_ids: UUID | None, peer: Peer | None = None) -> list[int]:
    """Commit offset 1 in partition 0 of each topic; return the error codes."""
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topics = tuple(
        offset_commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=(partition,))
        for topic_id in topic_ids
    )
    request = offset_commit.OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    return _codes(await broker.ask(request, peer=peer), topic_ids)


async def producer_of(broker: Broker) -> Any:
    """Return the id and the epoch of the producer of the transactional id ``t``."""
    init = InitProducerIdRequest(transactional_id="t", transaction_timeout=timedelta(seconds=60))
    producer = await broker.ask(init)
    assert int(producer.error_code) == NONE
    return producer


async def commit_in_transaction(
    broker: Broker, *topic_ids: UUID | None, peer: Peer | None = None, producer: Any = None
) -> list[int]:
    """Commit offset 1 of each topic in a transaction that stays open; return the error codes."""
    producer = producer or await producer_of(broker)
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=tuple(
            txn_offset_commit.TxnOffsetCommitRequestTopic(topic_id=id_, partitions=(partition,))
            for id_ in topic_ids
        ),
    )
    return _codes(await broker.ask(request, peer=peer), topic_ids)


def _codes(answer: Any, topic_ids: tuple[UUID | None, ...]) -> list[int]:
    assert [topic.topic_id for topic in answer.topics] == [id_ or None for id_ in topic_ids]
    return [int(topic.partitions[0].error_code) for topic in answer.topics]


async def fetch(
    broker: Broker, *topic_ids: UUID | None, peer: Peer | None = None, stable: bool = False
) -> list[tuple[int, int]]:
    """Return error code and committed offset of partition 0 of each topic."""
    topics = tuple(
        offset_fetch.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=(0,))
        for topic_id in topic_ids
    )
    group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
    request = offset_fetch.OffsetFetchRequest(groups=(group,), require_stable=stable)
    [found] = (await broker.ask(request, peer=peer)).groups
    assert int(found.error_code) == NONE
    return [
        (int(topic.partitions[0].error_code), topic.partitions[0].committed_offset)
        for topic in found.topics
    ]


async def delete(broker: Broker, name: str) -> None:
    state = DeleteTopicState(name=name, topic_id=None)
    request = DeleteTopicsRequest(topics=(state,), timeout=timedelta(seconds=1))
    assert int((await broker.ask(request)).responses[0].error_code) == NONE


COMMITS = pytest.mark.parametrize("commit_by", [commit, commit_in_transaction])


@COMMITS
def test_unknown_ids_are_answered_beside_known_ones(commit_by: Commit) -> None:
    async def scenario(broker: Broker) -> None:
        orders, unknown = await broker.topic_id("orders"), uuid4()
        codes = await commit_by(broker, unknown, orders, None)
        assert codes == [UNKNOWN_TOPIC_ID, NONE, UNKNOWN_TOPIC_ID]
        if commit_by is commit:
            assert await fetch(broker, unknown, orders, None) == [
                (UNKNOWN_TOPIC_ID, -1),
                (NONE, 1),
                (UNKNOWN_TOPIC_ID, -1),
            ]

    with_broker(scenario)


@COMMITS
def test_a_topic_that_is_named_twice_is_answered_twice(commit_by: Commit) -> None:
    async def scenario(broker: Broker) -> None:
        orders = await broker.topic_id("orders")
        assert await commit_by(broker, orders, orders) == [NONE, NONE]
        if commit_by is commit:
            assert await fetch(broker, orders, orders) == [(NONE, 1), (NONE, 1)]

    with_broker(scenario)


@COMMITS
def test_a_topic_that_was_made_again_has_neither_id_nor_offsets_of_the_former(
    commit_by: Commit,
) -> None:
    async def scenario(broker: Broker) -> None:
        former = await broker.topic_id("orders")
        assert await commit(broker, former) == [NONE]
        await delete(broker, "orders")
        await broker.create_topic("orders", 2)
        new = await broker.topic_id("orders")
        assert await fetch(broker, former, new) == [(UNKNOWN_TOPIC_ID, -1), (NONE, -1)]
        assert await RawMember(broker, GROUP).every_offset(10) == []
        assert await commit_by(broker, former, new) == [UNKNOWN_TOPIC_ID, NONE]

    with_broker(scenario)


def test_offsets_of_an_open_transaction_are_gone_with_the_topic() -> None:
    async def scenario(broker: Broker) -> None:
        former, producer = await broker.topic_id("orders"), await producer_of(broker)
        assert await commit_in_transaction(broker, former, producer=producer) == [NONE]
        assert await fetch(broker, former, stable=True) == [(UNSTABLE_OFFSET_COMMIT, -1)]
        await delete(broker, "orders")
        await broker.create_topic("orders", 2)
        new = await broker.topic_id("orders")
        # As in Kafka, the name stays unstable until the transaction ends.
        assert await fetch(broker, former, new, stable=True) == [
            (UNKNOWN_TOPIC_ID, -1),
            (UNSTABLE_OFFSET_COMMIT, -1),
        ]
        assert await fetch(broker, new) == [(NONE, -1)]
        request = EndTxnRequest(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        assert int((await broker.ask(request)).error_code) == NONE
        while await fetch(broker, new, stable=True) == [(UNSTABLE_OFFSET_COMMIT, -1)]:
            await asyncio.sleep(0)  # The marker is written by a task.
        assert await fetch(broker, new, stable=True) == [(NONE, -1)]

    with_broker(scenario)


def test_a_late_commit_for_a_former_topic_is_not_an_offset_of_the_new_one() -> None:
    async def scenario(broker: Broker) -> None:
        former = await broker.topic_id("orders")
        assert former is not None
        await delete(broker, "orders")
        await broker.create_topic("orders", 2)
        new = await broker.topic_id("orders")
        committed = OffsetAndMetadata(7, -1, "", broker.clock.wall_ms(), None, TopicId(former))
        late = OffsetCommit(GroupId(GROUP), TopicName("orders"), 0, committed)
        committer = Committer(GroupId(GROUP), MemberId(""), None, -1, None)
        coordinator = broker.running.parts.classic_group_coordinator
        await coordinator.commit(committer, (late,), api_version=10)
        assert await fetch(broker, new) == [(NONE, -1)]
        assert await RawMember(broker, GROUP).every_offset(10) == []

    with_broker(scenario)


@COMMITS
def test_refusals_are_those_of_kafka(commit_by: Commit) -> None:
    """Kafka, too, tells a topic without rights from an id that no topic has."""

    async def scenario(broker: Broker) -> None:
        orders, hidden = await broker.topic_id("orders"), await broker.topic_id("hidden")
        unknown, ann = uuid4(), user(*ANN)
        codes = await commit_by(broker, hidden, unknown, orders, peer=ann)
        assert codes == [TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, NONE]
        offsets = await fetch(broker, hidden, unknown, peer=ann)
        assert offsets == [(TOPIC_AUTHORIZATION_FAILED, -1), (UNKNOWN_TOPIC_ID, -1)]

    with_broker(scenario)


def test_a_refusal_does_not_tell_of_open_transactions() -> None:
    async def scenario(broker: Broker) -> None:
        hidden, ann = await broker.topic_id("hidden"), user(*ANN)
        assert await commit_in_transaction(broker, hidden) == [NONE]
        assert await fetch(broker, hidden, stable=True) == [(UNSTABLE_OFFSET_COMMIT, -1)]
        refused = [(TOPIC_AUTHORIZATION_FAILED, -1)]
        assert await fetch(broker, hidden, peer=ann, stable=True) == refused
        topic = offset_fetch_by_name.OffsetFetchRequestTopics(name="hidden", partition_indexes=(0,))
        group = offset_fetch_by_name.OffsetFetchRequestGroup(group_id=GROUP, topics=(topic,))
        request = offset_fetch_by_name.OffsetFetchRequest(groups=(group,), require_stable=True)
        [found] = (await broker.ask(request, peer=ann)).groups
        [partition] = found.topics[0].partitions
        assert int(partition.error_code) == TOPIC_AUTHORIZATION_FAILED

    with_broker(scenario)
