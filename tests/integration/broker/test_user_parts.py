"""What one user may hold of what all users share, by the requests that take it.

Every broker here has an authorizer that allows everything, so its users are limited only by their
part: half of each limit.  Alice takes items until she is refused; then bob gets his part, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.consumer_group_heartbeat.v1 import request as modern_heartbeat
from kio.schema.create_partitions.v3 import request as create_partitions
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.fetch.v12 import request as fetch
from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.join_group.v3 import request as join_group
from kio.schema.metadata.v12 import request as metadata
from kio.schema.offset_commit.v9 import request as offset_commit
from kio.schema.share_fetch.v2 import request as share_fetch
from kio.schema.share_group_heartbeat.v1 import request as share_heartbeat
from kio.static.primitive import i8, i32Timedelta

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from sharegroup.core.groups.share.sizes import GROUP_ROOM_BYTES
from sharegroup.core.security.principal import USER, Principal
from sharegroup.ids import GroupId
from sharegroup.protocol_enums import ResourceType
from tests.faults.in_process import Broker
from tests.support.limits import HANGING_SECONDS

NONE, INVALID_COMMIT_OFFSET_SIZE = 0, 28
POLICY_VIOLATION, GROUP_MAX_SIZE_REACHED, SHARE_SESSION_LIMIT_REACHED = 44, 81, 133
NO_SESSION = -1
"""What a fetch gets in place of an error code if it has no session."""

SECURED = {
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "allow_everyone_if_no_acl_found": "true",
    "super_users": "User:ANONYMOUS;User:root",
    "num_partitions": "10",
    "group_share_max_size": "20",
    "group_initial_rebalance_delay_ms": "0",
}
SECOND = timedelta(seconds=1)
OFTEN = 40
"""How often a user asks at most, so no limit of this file is beyond it."""


async def share_group(broker: Broker, peer: Peer, name: str) -> int:
    request = share_heartbeat.ShareGroupHeartbeatRequest(
        group_id=name,
        member_id="m",
        member_epoch=0,
        rack_id=None,
        subscribed_topic_names=("orders",),
    )
    return int((await broker.ask(request, peer=peer)).error_code)


async def group_of_the_consumer_protocol(broker: Broker, peer: Peer, name: str) -> int:
    request = modern_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=name,
        member_id="m",
        member_epoch=0,
        rebalance_timeout=i32Timedelta.parse(SECOND),
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    return int((await broker.ask(request, peer=peer)).error_code)


async def committed_offset(broker: Broker, peer: Peer, name: str) -> int:
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata="x" * 4_000
    )
    request = offset_commit.OffsetCommitRequest(
        group_id=name,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=(offset_commit.OffsetCommitRequestTopic(name="orders", partitions=(partition,)),),
    )
    answer = await broker.ask(request, peer=peer)
    return int(answer.topics[0].partitions[0].error_code)


async def transactional_id(broker: Broker, peer: Peer, name: str) -> int:
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=name, transaction_timeout=i32Timedelta.parse(SECOND)
    )
    return int((await broker.ask(request, peer=peer)).error_code)


async def topic(broker: Broker, peer: Peer, name: str) -> int:
    wanted = create_topics.CreatableTopic(
        name=name, num_partitions=10, replication_factor=1, assignments=(), configs=()
    )
    request = create_topics.CreateTopicsRequest(
        topics=(wanted,), timeout=i32Timedelta.parse(SECOND)
    )
    return int((await broker.ask(request, peer=peer)).topics[0].error_code)


async def grown_topic(broker: Broker, peer: Peer, name: str) -> int:
    """A topic of one partition gets nine more."""
    assert await broker.create_topic(name, 1) == NONE
    wanted = create_partitions.CreatePartitionsTopic(name=name, count=10, assignments=None)
    request = create_partitions.CreatePartitionsRequest(
        topics=(wanted,), timeout=i32Timedelta.parse(SECOND), validate_only=False
    )
    return int((await broker.ask(request, peer=peer)).results[0].error_code)


async def automatic_topic(broker: Broker, peer: Peer, name: str) -> int:
    wanted = metadata.MetadataRequestTopic(topic_id=None, name=name)
    request = metadata.MetadataRequest(
        topics=(wanted,),
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    return int((await broker.ask(request, peer=peer)).topics[0].error_code)


async def group_settings(broker: Broker, peer: Peer, name: str) -> int:
    change = alter_configs.AlterableConfig(
        name="share.session.timeout.ms", config_operation=i8(0), value="50000"
    )
    resource = alter_configs.AlterConfigsResource(
        resource_type=i8(ResourceType.GROUP), resource_name=name, configs=(change,)
    )
    request = alter_configs.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=False
    )
    return int((await broker.ask(request, peer=peer)).responses[0].error_code)


async def share_session(broker: Broker, peer: Peer, name: str) -> int:
    await share_group(broker, peer, "g")
    request = share_fetch.ShareFetchRequest(
        group_id="g",
        member_id=name,
        share_session_epoch=0,
        max_wait=i32Timedelta.parse(timedelta(0)),
        min_bytes=1,
        max_bytes=1,
        max_records=1,
        batch_size=1,
        topics=(),
        forgotten_topics_data=(),
    )
    asked = asyncio.ensure_future(broker.ask(request, peer=peer))
    while not asked.done():  # This error is answered only after the wait time of the request.
        await asyncio.sleep(0)
        broker.clock.advance(1)
    return int(asked.result().error_code)


async def fetch_session(broker: Broker, peer: Peer, name: str) -> int:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    request = fetch.FetchRequest(
        max_wait=i32Timedelta.parse(timedelta(0)),
        min_bytes=0,
        isolation_level=i8(0),
        session_id=0,
        session_epoch=0,
        topics=(fetch.FetchTopic(topic="orders", partitions=(partition,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    answer = await broker.ask(request, peer=peer)
    assert int(answer.error_code) == NONE
    return NONE if answer.session_id else NO_SESSION


Take = Callable[[Broker, Peer, str], Awaitable[int]]

SHARED: tuple[tuple[Take, str, int, int, str], ...] = (
    (share_group, "sharegroup.share.groups.bytes.max", 8 * GROUP_ROOM_BYTES,
     GROUP_MAX_SIZE_REACHED, "bytes_of_share_groups"),
    (share_group, "sharegroup.share.partitions.max", 8, GROUP_MAX_SIZE_REACHED, "share_partitions"),
    (group_of_the_consumer_protocol, "sharegroup.consumer.groups.bytes.max", 8 * GROUP_ROOM_BYTES,
     GROUP_MAX_SIZE_REACHED, "bytes_of_groups_of_the_consumer_protocol"),
    (committed_offset, "sharegroup.committed.offsets.bytes.max", 50_000,
     INVALID_COMMIT_OFFSET_SIZE, "bytes_of_committed_offsets"),
    (topic, "sharegroup.partitions.max", 81, POLICY_VIOLATION, "partitions_of_topics"),
    (grown_topic, "sharegroup.partitions.max", 90, POLICY_VIOLATION, "partitions_of_topics"),
    (automatic_topic, "sharegroup.partitions.max", 162, POLICY_VIOLATION, "partitions_of_topics"),
    (group_settings, "sharegroup.group.settings.bytes.max", 8_000, POLICY_VIOLATION,
     "bytes_of_group_settings"),
    (share_session, "group.share.max.share.sessions", 20, SHARE_SESSION_LIMIT_REACHED,
     "share_sessions"),
    (fetch_session, "max.incremental.fetch.session.cache.slots", 8, NO_SESSION, "fetch_sessions"),
)  # fmt: skip
"""How an item is taken, its limit, the answer beyond it, and the name in the metric."""


def peer_of(broker: Broker, user: str) -> Peer:
    """A connection of a user, who has logged in."""
    peer = Peer("127.0.0.1", principal=Principal(USER, user))
    peer.rights = broker.running.parts.rights_of(peer)
    return peer


async def taken(broker: Broker, take: Take, user: str) -> tuple[int, int]:
    """Take until there is no more; return how many items the user got, and the last answer."""
    peer = peer_of(broker, user)
    for count in range(OFTEN):
        code = await take(broker, peer, f"{user}-{count}")
        if code != NONE:
            return count, code
    return OFTEN, NONE


def run(scenario: Callable[[Broker], Awaitable[None]], path: Path, **settings: str) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path / "data"), **settings)
        await broker.create_topic("orders", 1)
        async with asyncio.timeout(HANGING_SECONDS):
            await scenario(broker)
        await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("take", "key", "limit", "refusal", "shared"),
    SHARED,
    ids=[f"{row[0].__name__}-{row[4]}" for row in SHARED],
)
def test_one_user_leaves_room_for_others(
    tmp_path: Path, take: Take, key: str, limit: int, refusal: int, shared: str
) -> None:
    async def scenario(broker: Broker) -> None:
        (of_alice, code), (of_bob, _) = [
            await taken(broker, take, user) for user in ("alice", "bob")
        ]
        assert code == refusal
        assert of_alice == (10 if take is share_session else 4)
        assert 2 <= of_bob <= of_alice
        refused = {
            name: count for name, count in broker.running.parts.user_part_refusals() if count
        }
        assert refused.keys() == {shared}

    run(scenario, tmp_path, **SECURED, **{key.replace(".", "_"): str(limit)})


@pytest.mark.parametrize(
    ("user", "changed"),
    [
        ("root", SECURED),
        ("alice", {}),
        ("alice", {**SECURED, "sharegroup_user_limits_percent": "100"}),
    ],
    ids=["super user", "no authorizer", "100 percent"],
)
def test_user_without_a_part_may_take_all(
    tmp_path: Path, user: str, changed: dict[str, str]
) -> None:
    async def scenario(broker: Broker) -> None:
        assert await taken(broker, share_group, user) == (8, GROUP_MAX_SIZE_REACHED)

    run(scenario, tmp_path, **changed, sharegroup_share_groups_bytes_max=str(8 * GROUP_ROOM_BYTES))


def test_anonymous_peers_are_one_user_if_their_rights_are_limited(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await taken(broker, share_group, "ANONYMOUS") == (4, GROUP_MAX_SIZE_REACHED)

    settings = {**SECURED, "super_users": "User:root"}
    run(scenario, tmp_path, **settings, sharegroup_share_groups_bytes_max=str(8 * GROUP_ROOM_BYTES))


def test_user_with_many_transactional_ids_loses_its_own_and_no_others(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await transactional_id(broker, peer_of(broker, "bob"), "of-bob") == NONE
        alice = peer_of(broker, "alice")
        for number in range(100):
            assert await transactional_id(broker, alice, f"of-alice-{number}") == NONE
        known = broker.running.parts.transaction_coordinator.transactions
        assert known.find("of-bob") is not None
        assert known.find("of-alice-0") is None
        assert 20 < len(known) < 40
        assert known.memory.held_by(alice.principal) <= 65_536 // 2

    run(scenario, tmp_path, **SECURED, sharegroup_transactions_bytes_max="65536")


def test_classic_group_belongs_to_the_user_who_joins_it_first(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        alice = peer_of(broker, "alice")
        protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"metadata")
        request = join_group.JoinGroupRequest(
            group_id="g",
            session_timeout=i32Timedelta.parse(10 * SECOND),
            rebalance_timeout=i32Timedelta.parse(SECOND),
            member_id="",
            protocol_type="consumer",
            protocols=(protocol,),
        )
        assert int((await broker.ask(request, peer=alice)).error_code) == NONE
        groups, _, members = broker.running.parts.classic_group_coordinator.shared_totals
        assert (groups.held_by(alice.principal), members.owner(GroupId("g"))) == (
            1,
            alice.principal,
        )
        assert members.held_by(alice.principal) == members.used

    run(scenario, tmp_path, **SECURED)


def test_large_batches_of_a_group_are_read_in_the_turns_of_its_owner(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        alice, running = peer_of(broker, "alice"), broker.running
        assert await share_group(broker, alice, "g") == NONE
        for reader in (running.parts.share_partitions.batch_checks, running.parts.dead_letters):
            assert reader.owner_of(GroupId("g")) == alice.principal
            assert reader.owner_of(GroupId("another")) is None

    run(scenario, tmp_path, **SECURED)


def test_groups_of_a_restarted_broker_belong_to_the_users_who_come_back(tmp_path: Path) -> None:
    """Four stored groups leave four: alice may hold half of them, until she comes back to hers."""

    async def first(broker: Broker) -> None:
        assert await taken(broker, share_group, "alice") == (4, GROUP_MAX_SIZE_REACHED)

    async def second(broker: Broker) -> None:
        alice = peer_of(broker, "alice")
        assert await taken(broker, share_group, "mallory") == (2, GROUP_MAX_SIZE_REACHED)
        for number in range(4):
            assert await share_group(broker, alice, f"alice-{number}") == NONE
        assert await share_group(broker, alice, "another") == GROUP_MAX_SIZE_REACHED
        assert await taken(broker, share_group, "mallory") == (4, GROUP_MAX_SIZE_REACHED)

    limit = {"sharegroup_share_groups_bytes_max": str(8 * GROUP_ROOM_BYTES)}
    run(first, tmp_path, **SECURED, **limit)
    run(second, tmp_path, **SECURED, **limit)
