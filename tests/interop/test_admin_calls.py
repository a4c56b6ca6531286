"""Calls of the AdminClient about brokers, topics by id, rights and groups of both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from sharegroup.client import (
    AclOperation,
    AdminClient,
    AlterConfig,
    CommittedOffset,
    ConfigResource,
    GroupListing,
    GroupState,
    GroupType,
    LogDirDescription,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    ResourceType,
    TopicDescription,
    TopicPartition,
    sync,
)
from sharegroup.client.records import Offsets
from sharegroup.errors import InvalidRequest, RequestTimedOut, UnknownTopicId
from tests.support.chosen_broker import when_heard
from tests.support.kafka_peer import free_ports
from tests.support.limits import HANGING_SECONDS


def play(bootstrap: str, scenario: Callable[[AdminClient], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with (
            AdminClient(bootstrap_servers=bootstrap) as admin,
            asyncio.timeout(HANGING_SECONDS),
        ):
            await scenario(admin)

    asyncio.run(run())


async def commit(admin: AdminClient, group: str, offsets: Offsets) -> None:
    """Commit, as soon as the broker has heard of the topic."""
    while any((await admin.alter_consumer_group_offsets(group, offsets)).values()):
        await asyncio.sleep(0.05)


def test_log_directories_with_the_sizes_of_logs(bootstrap: str, topic: str) -> None:
    async def scenario(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic(topic, num_partitions=2)])
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"v" * 1_000, partition=1)
        described = await admin.describe_log_dirs()
        (node_id,) = described
        (log_dir,) = described[node_id].values()  # type: ignore[union-attr]
        assert isinstance(log_dir, LogDirDescription)
        sizes = {
            where.partition: log.size_bytes
            for where, log in log_dir.replicas.items()
            if where.topic == topic
        }
        assert sizes[0] == 0
        assert sizes[1] > 1_000
        missing = (await admin.describe_log_dirs([node_id, 77]))[77]
        assert isinstance(missing, InvalidRequest)
        assert str(missing) == f"broker 77 is not in the cluster; its brokers are {node_id}"

    play(bootstrap, scenario)


def test_resources_with_configs(bootstrap: str, topic: str, group: str) -> None:
    of_topic = ConfigResource(ResourceType.TOPIC, topic)
    of_group = ConfigResource(ResourceType.GROUP, group)
    with sync.AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic)])
        admin.incremental_alter_configs(
            {of_group: [AlterConfig("share.heartbeat.interval.ms", "5000")]}
        )
        both = when_heard(admin.list_config_resources, lambda found: of_group in found)
        assert {of_topic, of_group} <= {*both}
        assert of_group in admin.list_config_resources([ResourceType.GROUP])
        assert of_topic not in admin.list_config_resources([ResourceType.GROUP])


def test_topics_by_id(bootstrap: str, topic: str) -> None:
    unknown = UUID(int=77)

    async def scenario(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic(topic)])
        by_name = (await admin.describe_topics([topic]))[topic]
        assert isinstance(by_name, TopicDescription)
        assert by_name.topic_id is not None
        by_id = await admin.describe_topics_by_id([by_name.topic_id, unknown])
        assert by_id[by_name.topic_id] == by_name
        assert isinstance(by_id[unknown], UnknownTopicId)
        assert str(unknown) in str(by_id[unknown])

    play(bootstrap, scenario)


def test_rights_are_described_only_on_request(bootstrap: str, topic: str, group: str) -> None:
    async def scenario(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic(topic)])
        await commit(admin, group, {TopicPartition(topic, 0): 0})
        for ask in (admin.describe_groups, admin.describe_consumer_groups):
            plain = (await ask([group]))[group]
            assert plain.authorized_operations is None  # type: ignore[union-attr]
            full = (await ask([group], include_authorized_operations=True))[group]
            assert {AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE} <= (
                full.authorized_operations  # type: ignore[union-attr,operator]
            )
        assert (await admin.describe_cluster()).authorized_operations is None

    play(bootstrap, scenario)


def test_consumer_groups_are_listed_without_share_groups(
    bootstrap: str, topic: str, group: str
) -> None:
    async def scenario(admin: AdminClient) -> None:
        await admin.create_topics([NewTopic(topic)])
        where = TopicPartition(topic, 0)
        await admin.alter_share_group_offsets(f"{group}.share", {where: 0})
        await commit(admin, group, {where: OffsetAndMetadata(3, "by hand")})
        listed = await admin.list_consumer_groups()
        assert GroupListing(group, GroupType.CLASSIC, "", GroupState.EMPTY) in listed
        assert f"{group}.share" not in [listing.group_id for listing in listed]
        offsets = await admin.list_consumer_group_offsets({group: None})
        assert offsets == {group: {where: CommittedOffset(3, None, "by hand")}}

    play(bootstrap, scenario)


def test_the_metadata_quorum(bootstrap: str) -> None:
    async def scenario(admin: AdminClient) -> None:
        quorum = await admin.describe_metadata_quorum()
        (node,) = (await admin.describe_cluster()).nodes
        assert quorum.leader_id == node.node_id
        assert [voter.node_id for voter in quorum.voters] == [node.node_id]
        assert quorum.high_watermark >= 0

    play(bootstrap, scenario)


def test_a_timeout_limits_the_whole_call() -> None:
    async def scenario(admin: AdminClient) -> None:
        with pytest.raises(RequestTimedOut, match="describe_topics: gave up after"):
            await admin.describe_topics(timeout=0.2)
        # The first group uses all of the time; the second has its own result all the same.
        errors = await admin.describe_share_groups(["a", "b"], timeout=0.2)
        assert {name: type(error) for name, error in errors.items()} == {
            "a": RequestTimedOut,
            "b": RequestTimedOut,
        }
        with pytest.raises(ValueError, match="timeout=0; expected more than 0 seconds, or None"):
            await admin.list_groups(timeout=0)

    play(f"127.0.0.1:{free_ports(1)[0]}", scenario)
