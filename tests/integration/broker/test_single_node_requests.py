"""Requests about replicas, leaders, quorums and other brokers, to a cluster that has one node."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.add_raft_voter.v1 import request as add_voter
from kio.schema.alter_partition_reassignments.v1 import request as reassign
from kio.schema.alter_replica_log_dirs.v2 import request as move
from kio.schema.api_versions.v4.request import ApiVersionsRequest as ApiVersions4
from kio.schema.create_acls.v3 import request as create_acls
from kio.schema.delete_acls.v3 import request as delete_acls
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest as DeleteGroups2
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_quorum.v2 import request as quorum, response as quorum_answer
from kio.schema.describe_topic_partitions.v0 import request as describe
from kio.schema.elect_leaders.v2 import request as elect
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.offset_for_leader_epoch.v4 import request as epochs
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.static.primitive import u16

from sharegroup.broker.parts import Node
from sharegroup.ids import TopicIdPartition, TopicName
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.messages.api_versions_v5 import ApiVersionsRequest
from sharegroup.wire.messages.delete_groups_v3 import DeleteGroupsRequest
from sharegroup.wire.messages.unregister_controller_v0 import UnregisterControllerRequest
from tests.faults.in_process import Broker, ShareMember

UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, UNSUPPORTED_VERSION = 3, 17, 35
INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, LOG_DIR_NOT_FOUND = 39, 42, 57
SECURITY_DISABLED = 54
NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 68, 69
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
ELECTION_NOT_NEEDED, NO_REASSIGNMENT_IN_PROGRESS, BROKER_ID_NOT_REGISTERED = 84, 85, 102
MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE, REBOOTSTRAP_REQUIRED = 114, 115, 129
CONTROLLER_ID_NOT_REGISTERED = 136

Scenario = Callable[[Broker], Awaitable[None]]


def run(scenario: Scenario, path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path / "data"))
        await broker.create_topic("orders", 2)
        await scenario(broker)
        await broker.stop()

    asyncio.run(main())


def batch_of(*values: bytes) -> bytearray:
    return encode_batch([SimpleRecord(None, value, 1) for value in values])


async def end_of(
    broker: Broker, partition: int, epoch: int, *, current: int = -1, topic: str = "orders"
) -> tuple[int, int, int]:
    """Error code, epoch and end offset of an OffsetForLeaderEpoch of one partition."""
    wanted = epochs.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    request = epochs.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=(epochs.OffsetForLeaderTopic(topic=topic, partitions=(wanted,)),),
    )
    (found,) = (await broker.ask(request)).topics
    assert found.topic == topic
    (result,) = found.partitions
    assert result.partition == partition
    return int(result.error_code), result.leader_epoch, result.end_offset


def test_leader_epoch_ends_at_the_end_of_the_log(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await end_of(broker, 0, 0) == (0, 0, 0)
        await broker.produce("orders", 0, batch_of(b"a", b"b", b"c"))
        assert await end_of(broker, 0, 0) == (0, 0, 3)
        assert await end_of(broker, 1, 0, current=0) == (0, 0, 0)

    run(scenario, tmp_path)


def test_epochs_that_never_began_are_unknown(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await end_of(broker, 0, 1) == (0, -1, -1)
        assert await end_of(broker, 0, -1) == (0, -1, -1)
        assert await end_of(broker, 2, 0) == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert await end_of(broker, 0, 0, topic="no") == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert await end_of(broker, 0, 0, current=1) == (UNKNOWN_LEADER_EPOCH, -1, -1)

    run(scenario, tmp_path)


def test_records_of_a_former_epoch_are_still_valid(tmp_path: Path) -> None:
    """A test raises the leader epoch; no record is lost by it."""

    async def scenario(broker: Broker) -> None:
        await broker.produce("orders", 0, batch_of(b"a"))
        topics = broker.running.parts.topics
        topic_id = topics.catalog.topic(TopicName("orders")).topic_id
        assert topics.raise_leader_epoch(TopicIdPartition(topic_id, 0)) == 1
        assert await end_of(broker, 0, 0, current=1) == (0, 0, 1)
        assert await end_of(broker, 0, 1, current=1) == (0, 1, 1)
        assert await end_of(broker, 0, 0, current=0) == (FENCED_LEADER_EPOCH, -1, -1)

    run(scenario, tmp_path)


def test_replica_moves_only_to_the_directory_where_it_is(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        own = os.path.abspath(tmp_path / "data")
        topics = (
            move.AlterReplicaLogDirTopic(name="orders", partitions=(0, 2)),
            move.AlterReplicaLogDirTopic(name="missing", partitions=(0,)),
        )
        dirs = tuple(
            move.AlterReplicaLogDir(path=path, topics=topics) for path in (own, "/elsewhere")
        )
        answer = await broker.ask(move.AlterReplicaLogDirsRequest(dirs=dirs))
        assert [
            (topic.topic_name, partition.partition_index, int(partition.error_code))
            for topic in answer.results
            for partition in topic.partitions
        ] == [
            ("orders", 0, 0),
            ("orders", 2, UNKNOWN_TOPIC_OR_PARTITION),
            ("missing", 0, UNKNOWN_TOPIC_OR_PARTITION),
            ("orders", 0, LOG_DIR_NOT_FOUND),
            ("orders", 2, LOG_DIR_NOT_FOUND),
            ("missing", 0, LOG_DIR_NOT_FOUND),
        ]

    run(scenario, tmp_path)


def test_both_requests_about_directories_name_the_one_that_the_broker_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`log.dirs` is a list, so it may have blanks and commas around its only directory."""
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        broker = await Broker.start(None, " , data , ")
        await broker.create_topic("orders", 1)
        described = await broker.ask(DescribeLogDirsRequest(topics=()))
        assert [found.log_dir for found in described.results] == [f"{tmp_path}/data"]
        topics = (move.AlterReplicaLogDirTopic(name="orders", partitions=(0,)),)
        directory = move.AlterReplicaLogDir(path=f"{tmp_path}/data", topics=topics)
        moved = await broker.ask(move.AlterReplicaLogDirsRequest(dirs=(directory,)))
        assert [int(found.error_code) for found in moved.results[0].partitions] == [0]
        await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize("election_type", [0, 1])
def test_no_election_is_needed(tmp_path: Path, election_type: int) -> None:
    async def scenario(broker: Broker) -> None:
        wanted = (
            elect.TopicPartitions(topic="orders", partitions=(0, 5)),
            elect.TopicPartitions(topic="missing", partitions=(0,)),
        )
        answer = await broker.ask(
            elect.ElectLeadersRequest(election_type=election_type, topic_partitions=wanted)
        )
        assert answer.error_code == 0
        assert [
            (result.topic, partition.partition_id, int(partition.error_code))
            for result in answer.replica_election_results
            for partition in result.partition_result
        ] == [
            ("orders", 0, ELECTION_NOT_NEEDED),
            ("orders", 5, UNKNOWN_TOPIC_OR_PARTITION),
            ("missing", 0, UNKNOWN_TOPIC_OR_PARTITION),
        ]
        every = await broker.ask(
            elect.ElectLeadersRequest(election_type=election_type, topic_partitions=None)
        )
        assert (every.error_code, every.replica_election_results) == (0, ())

    run(scenario, tmp_path)


def test_unknown_election_type_is_refused_for_every_partition(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        wanted = (elect.TopicPartitions(topic="orders", partitions=(0,)),)
        answer = await broker.ask(
            elect.ElectLeadersRequest(election_type=2, topic_partitions=wanted)
        )
        assert answer.error_code == INVALID_REQUEST
        (partition,) = answer.replica_election_results[0].partition_result
        assert partition.error_code == INVALID_REQUEST
        assert "election type 2" in partition.error_message

    run(scenario, tmp_path)


def test_partitions_are_reassigned_only_to_this_broker(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partitions = tuple(
            reassign.ReassignablePartition(partition_index=index, replicas=replicas)
            for index, replicas in ((0, (1,)), (1, (1, 2)), (0, ()), (0, None), (7, (1,)))
        )
        request = reassign.AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=False,
            topics=(reassign.ReassignableTopic(name="orders", partitions=partitions),),
        )
        answer = await broker.ask(request)
        assert (answer.error_code, answer.allow_replication_factor_change) == (0, False)
        results = answer.responses[0].partitions
        assert [int(result.error_code) for result in results] == [
            0,
            INVALID_REPLICA_ASSIGNMENT,
            INVALID_REPLICA_ASSIGNMENT,
            NO_REASSIGNMENT_IN_PROGRESS,
            UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert results[0].error_message is None
        assert "its only assignment is [1]" in results[1].error_message
        listed = await broker.ask(ListPartitionReassignmentsRequest(topics=None))
        assert (listed.error_code, listed.topics) == (0, ())

    run(scenario, tmp_path)


def quorum_request(*names: str, partitions: tuple[int, ...] = (0,)) -> Any:
    wanted = tuple(quorum.PartitionData(partition_index=index) for index in partitions)
    return quorum.DescribeQuorumRequest(
        topics=tuple(quorum.TopicData(topic_name=name, partitions=wanted) for name in names)
    )


def test_this_broker_is_the_only_voter_of_the_metadata_quorum(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        answer = await broker.ask(quorum_request("__cluster_metadata"))
        assert answer.error_code == 0
        (partition,) = answer.topics[0].partitions
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
        (voter,) = partition.current_voters
        assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
        assert partition.observers == ()
        (node,) = answer.nodes
        port = broker.running.parts.node.port
        listeners = [(found.name, found.host, found.port) for found in node.listeners]
        assert listeners == [("PLAINTEXT", "127.0.0.1", port)]
        await broker.create_topic("later", 1)
        after = await broker.ask(quorum_request("__cluster_metadata"))
        grown = after.topics[0].partitions[0].high_watermark
        assert grown == partition.high_watermark + 1

    run(scenario, tmp_path)


def test_node_of_the_quorum_has_the_name_of_the_listener_with_its_address(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        running = broker.running
        view = running.parts.seen_by("SECURE", Node(1, "broker.example", 9093))
        broker.running = running._replace(parts=view)
        answer = await broker.ask(quorum_request("__cluster_metadata"))
        broker.running = running
        (listener,) = answer.nodes[0].listeners
        assert listener == quorum_answer.Listener(
            name="SECURE", host="broker.example", port=u16(9093)
        )

    run(scenario, tmp_path)


def test_other_quorums_are_unknown(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        for request in (
            quorum_request("orders"),
            quorum_request("__cluster_metadata", partitions=(0, 1)),
            quorum_request("__cluster_metadata", "orders"),
        ):
            answer = await broker.ask(request)
            codes = {
                int(partition.error_code)
                for topic in answer.topics
                for partition in topic.partitions
            }
            assert (int(answer.error_code), codes) == (0, {UNKNOWN_TOPIC_OR_PARTITION})

    run(scenario, tmp_path)


def test_quorum_cannot_change(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        added = await broker.ask(
            add_voter.AddRaftVoterRequest(
                cluster_id=None,
                timeout=broker_timeout(),
                voter_id=2,
                voter_directory_id=UUID(int=7),
                listeners=(add_voter.Listener(name="CONTROLLER", host="h", port=9093),),
            )
        )
        removed = await broker.ask(
            RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=UUID(int=7))
        )
        for answer in (added, removed):
            assert answer.error_code == UNSUPPORTED_VERSION
            assert "kraft.version is 0" in answer.error_message

    run(scenario, tmp_path)


def broker_timeout() -> Any:
    return elect.ElectLeadersRequest(election_type=0, topic_partitions=()).timeout


def test_a_running_broker_cannot_be_unregistered(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        for make, unknown in (
            (UnregisterBrokerRequest, BROKER_ID_NOT_REGISTERED),
            (UnregisterControllerRequest, CONTROLLER_ID_NOT_REGISTERED),
        ):
            field = "broker_id" if make is UnregisterBrokerRequest else "controller_id"
            own = await broker.ask(make(**{field: 1}))
            other = await broker.ask(make(**{field: 2}))
            assert own.error_code == INVALID_REQUEST
            assert "cannot be unregistered while it runs" in own.error_message
            assert other.error_code == unknown

    run(scenario, tmp_path)


async def described(
    broker: Broker, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    """Name, error code and partitions of each topic, and the next cursor."""
    start = cursor and describe.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    request = describe.DescribeTopicPartitionsRequest(
        topics=tuple(describe.TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=start,
    )
    answer = await broker.ask(request)
    found = [
        (
            topic.name,
            int(topic.error_code),
            [partition.partition_index for partition in topic.partitions],
        )
        for topic in answer.topics
    ]
    following = answer.next_cursor
    return found, following and (following.topic_name, following.partition_index)


def test_topics_are_described_in_pages(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await broker.create_topic("audit", 3)
        wanted = "orders", "audit", "orders"
        assert await described(broker, *wanted) == (
            [("audit", 0, [0, 1, 2]), ("orders", 0, [0, 1])],
            None,
        )
        first = await described(broker, *wanted, limit=2)
        assert first == ([("audit", 0, [0, 1])], ("audit", 2))
        second = await described(broker, *wanted, limit=2, cursor=first[1])
        assert second == ([("audit", 0, [2]), ("orders", 0, [0])], ("orders", 1))
        third = await described(broker, *wanted, limit=2, cursor=second[1])
        assert third == ([("orders", 0, [1])], None)
        exact = await described(broker, *wanted, limit=3)
        assert exact == ([("audit", 0, [0, 1, 2])], ("orders", 0))

    run(scenario, tmp_path)


def test_all_topics_are_described_without_names(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        found, following = await described(broker)
        assert [name for name, _, _ in found] == [
            "__consumer_offsets",
            "__share_group_state",
            "__transaction_state",
            "orders",
        ]
        assert following is None
        last, _ = await described(broker, cursor=("orders", 1))
        assert last == [("orders", 0, [1])]

    run(scenario, tmp_path)


def test_one_response_has_at_most_2000_partitions(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await broker.create_topic("wide", 2_100)
        found, following = await described(broker, "wide", limit=2**31 - 1)
        assert (len(found[0][2]), following) == (2_000, ("wide", 2_000))
        rest, end = await described(broker, "wide", limit=2**31 - 1, cursor=("wide", 2_000))
        assert (rest[0][2], end) == (list(range(2_000, 2_100)), None)

    run(scenario, tmp_path)


def test_topics_that_do_not_exist_have_an_error(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        found, _ = await described(broker, "missing", "a/b")
        assert found == [("a/b", INVALID_TOPIC, []), ("missing", UNKNOWN_TOPIC_OR_PARTITION, [])]
        for cursor in (("missing", 0), ("orders", -1)):
            found, _ = await described(broker, "orders", cursor=cursor)
            assert found == [("orders", INVALID_REQUEST, [])]

    run(scenario, tmp_path)


def test_described_partitions_are_led_by_this_broker(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        request = describe.DescribeTopicPartitionsRequest(
            topics=(describe.TopicRequest(name="orders"),)
        )
        (topic,) = (await broker.ask(request)).topics
        partition = topic.partitions[0]
        assert (partition.leader_id, partition.leader_epoch) == (1, 0)
        assert (partition.replica_nodes, partition.isr_nodes) == ((1,), (1,))
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
        assert (topic.is_internal, topic.topic_authorized_operations) == (False, 3576)

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("cluster", "node", "expected"),
    [
        (None, -1, 0),
        ("own", 1, 0),
        ("own", 2, REBOOTSTRAP_REQUIRED),
        ("another", 1, REBOOTSTRAP_REQUIRED),
        (None, 1, INVALID_REQUEST),
        ("own", -1, INVALID_REQUEST),
    ],
)
def test_client_learns_that_it_reached_another_node(
    tmp_path: Path, cluster: str | None, node: int, expected: int
) -> None:
    async def scenario(broker: Broker) -> None:
        answer = await broker.ask(
            ApiVersionsRequest(
                client_software_name="test",
                client_software_version="1.0",
                cluster_id=broker.running.cluster_id if cluster == "own" else cluster,
                node_id=node,
            )
        )
        assert answer.error_code == expected

    run(scenario, tmp_path)


@pytest.mark.parametrize("name", ["", "-a", "a b", "kafka_x", "a" * 1_000 + "."])
def test_software_names_that_kafka_refuses_are_refused(tmp_path: Path, name: str) -> None:
    async def scenario(broker: Broker) -> None:
        for software, version in ((name, "1"), ("test", name)):
            answer = await broker.ask(
                ApiVersions4(client_software_name=software, client_software_version=version)
            )
            assert answer.error_code == INVALID_REQUEST

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("endpoint_type", "expected"),
    [(1, 0), (2, MISMATCHED_ENDPOINT_TYPE), (3, UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_cluster_has_endpoints_of_brokers_only(
    tmp_path: Path, endpoint_type: int, expected: int
) -> None:
    async def scenario(broker: Broker) -> None:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False,
            endpoint_type=endpoint_type,
            include_fenced_brokers=False,
        )
        answer = await broker.ask(request)
        assert answer.error_code == expected
        assert len(answer.brokers) == (1 if expected == 0 else 0)

    run(scenario, tmp_path)


def test_group_that_cannot_be_deleted_is_explained_from_version_3_on(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await ShareMember("busy", "member", "orders", 2, connection_id=1).heartbeat(broker)
        answer = await broker.ask(DeleteGroupsRequest(groups_names=("busy", "missing")))
        assert [int(result.error_code) for result in answer.results] == [
            NON_EMPTY_GROUP,
            GROUP_ID_NOT_FOUND,
        ]
        assert "'busy'" in answer.results[0].error_message
        assert "'missing'" in answer.results[1].error_message
        older = await broker.ask(DeleteGroups2(groups_names=("busy",)))
        assert older.results[0].error_code == NON_EMPTY_GROUP

    run(scenario, tmp_path)


def test_requests_about_access_control_are_answered_as_without_an_authorizer(
    tmp_path: Path,
) -> None:
    """One error for a description, and one for each entry that is to be created or deleted."""
    any_acl: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    creation = create_acls.AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:ada",
        host="*",
        operation=3,
        permission_type=3,
    )

    async def scenario(broker: Broker) -> None:
        described = await broker.ask(DescribeAclsRequest(**any_acl))
        assert (described.error_code, described.resources) == (SECURITY_DISABLED, ())
        assert "authorizer.class.name" in described.error_message
        created = await broker.ask(create_acls.CreateAclsRequest(creations=(creation, creation)))
        assert [found.error_code for found in created.results] == [SECURITY_DISABLED] * 2
        wanted = delete_acls.DeleteAclsFilter(**any_acl)
        deleted = await broker.ask(delete_acls.DeleteAclsRequest(filters=(wanted,)))
        assert [found.error_code for found in deleted.filter_results] == [SECURITY_DISABLED]

    run(scenario, tmp_path)
