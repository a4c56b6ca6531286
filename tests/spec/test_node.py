"""Requests about replicas, leaders, the quorum and clients, to one node (docs/spec.md, «node»)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kio.schema.add_raft_voter.v1 import request as add_voter
from kio.schema.alter_partition_reassignments.v1 import request as reassign
from kio.schema.alter_replica_log_dirs.v2 import request as move
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_quorum.v2 import request as quorum
from kio.schema.describe_topic_partitions.v0 import request as describe
from kio.schema.elect_leaders.v2 import request as elect
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_offsets.v8 import request as list_offsets_8
from kio.schema.list_offsets.v11 import request as list_offsets
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.offset_for_leader_epoch.v4 import request as epochs
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from sharegroup.wire.messages.api_versions_v5 import ApiVersionsRequest
from sharegroup.wire.messages.delete_groups_v3 import DeleteGroupsRequest
from tests.spec.messages import Topic, milliseconds
from tests.spec.scene import Scene

UNKNOWN_PARTITION, INVALID_TOPIC, UNSUPPORTED_VERSION = 3, 17, 35
INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST = 39, 40, 42
LOG_DIR_NOT_FOUND, GROUP_ID_NOT_FOUND, UNKNOWN_EPOCH = 57, 69, 75
ELECTION_NOT_NEEDED, NO_REASSIGNMENT, BROKER_ID_NOT_REGISTERED = 84, 85, 102
MISMATCHED_ENDPOINT, UNSUPPORTED_ENDPOINT, REBOOTSTRAP_REQUIRED = 114, 115, 129
CLIENT_METRICS = 16


def end_of_epoch(scene: Scene, topic: Topic, epoch: int, current: int = -1) -> tuple[int, int, int]:
    """Error code, epoch and end offset."""
    wanted = epochs.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    asked = epochs.OffsetForLeaderTopic(topic=topic.name, partitions=(wanted,))
    request = epochs.OffsetForLeaderEpochRequest(replica_id=-1, topics=(asked,))
    found = scene.ask(request).topics[0].partitions[0]
    return int(found.error_code), found.leader_epoch, found.end_offset


def test_node_1_leader_epoch_ends_at_the_end_of_the_log(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 3)
    assert end_of_epoch(scene, topic, 0) == (0, 0, 3)
    assert end_of_epoch(scene, topic, 0, current=0) == (0, 0, 3)


def test_node_2_epoch_that_has_not_begun_has_no_end(scene: Scene) -> None:
    topic = scene.topic()
    assert end_of_epoch(scene, topic, 7) == (0, -1, -1)
    assert end_of_epoch(scene, topic, -1) == (0, -1, -1)
    assert end_of_epoch(scene, topic, 0, current=7) == (UNKNOWN_EPOCH, -1, -1)


def page(
    scene: Scene, *names: str, limit: int, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    """Name, error code and partitions of each topic, and the next cursor."""
    start = cursor and describe.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    answer = scene.ask(
        describe.DescribeTopicPartitionsRequest(
            topics=tuple(describe.TopicRequest(name=name) for name in names),
            response_partition_limit=limit,
            cursor=start,
        )
    )
    found = [
        (str(topic.name), int(topic.error_code), [p.partition_index for p in topic.partitions])
        for topic in answer.topics
    ]
    following = answer.next_cursor
    return found, following and (following.topic_name, following.partition_index)


def test_node_3_topics_are_described_in_pages(scene: Scene) -> None:
    first, second = sorted((scene.topic(3), scene.topic(2)), key=lambda topic: topic.name)
    names = second.name, first.name, second.name
    count = {topic.name: topic.partition_count for topic in (first, second)}
    everything, end = page(scene, *names, limit=100)
    assert end is None
    assert everything == [(name, 0, list(range(count[name]))) for name in sorted(count)]
    seen, cursor = page(scene, *names, limit=1)
    while cursor is not None:
        more, cursor = page(scene, *names, limit=1, cursor=cursor)
        seen += more
    assert [(name, numbers) for name, _, numbers in seen if numbers] == [
        (name, [number]) for name, _, numbers in everything for number in numbers
    ]


def test_node_4_unknown_topics_and_cursors_are_errors(scene: Scene) -> None:
    topic, missing = scene.topic(), scene.new_name("missing")
    found, _ = page(scene, missing, "a/b", limit=10)
    assert sorted(found) == sorted([(missing, UNKNOWN_PARTITION, []), ("a/b", INVALID_TOPIC, [])])
    for cursor in ((missing, 0), (topic.name, -1)):
        assert page(scene, topic.name, limit=10, cursor=cursor)[0] == [
            (topic.name, INVALID_REQUEST, [])
        ]


@pytest.mark.parametrize("election_type", [0, 1])
def test_node_5_no_election_is_needed(scene: Scene, election_type: int) -> None:
    topic, missing = scene.topic(), scene.new_name("missing")
    wanted = tuple(
        elect.TopicPartitions(topic=name, partitions=(0,)) for name in (topic.name, missing)
    )
    request = elect.ElectLeadersRequest(election_type=election_type, topic_partitions=wanted)
    results = scene.ask(request).replica_election_results
    codes = [int(result.partition_result[0].error_code) for result in results]
    assert codes == [ELECTION_NOT_NEEDED, UNKNOWN_PARTITION]


def reassigned(scene: Scene, topic: Topic, replicas: tuple[int, ...] | None) -> int:
    """The error code."""
    partition = reassign.ReassignablePartition(partition_index=0, replicas=replicas)
    asked = reassign.ReassignableTopic(name=topic.name, partitions=(partition,))
    answer = scene.ask(reassign.AlterPartitionReassignmentsRequest(topics=(asked,)))
    return int(answer.responses[0].partitions[0].error_code)


def test_node_6_partitions_can_be_assigned_to_this_node_alone(scene: Scene) -> None:
    topic = scene.topic()
    assert reassigned(scene, topic, (1,)) == 0
    for elsewhere in ((2,), (1, 2), ()):
        assert reassigned(scene, topic, elsewhere) == INVALID_REPLICA_ASSIGNMENT
    assert reassigned(scene, topic, None) == NO_REASSIGNMENT
    listed = scene.ask(ListPartitionReassignmentsRequest(topics=None))
    assert (int(listed.error_code), listed.topics) == (0, ())


def test_node_7_replica_cannot_move_to_an_unknown_directory(scene: Scene) -> None:
    topic = scene.topic()
    moved = move.AlterReplicaLogDirTopic(name=topic.name, partitions=(0,))
    directory = move.AlterReplicaLogDir(path="/no/such/directory", topics=(moved,))
    answer = scene.ask(move.AlterReplicaLogDirsRequest(dirs=(directory,)))
    assert answer.results[0].partitions[0].error_code == LOG_DIR_NOT_FOUND


def quorum_of(scene: Scene, name: str) -> Any:
    partition = quorum.PartitionData(partition_index=0)
    asked = quorum.TopicData(topic_name=name, partitions=(partition,))
    return scene.ask(quorum.DescribeQuorumRequest(topics=(asked,)))


def test_node_8_this_node_is_the_metadata_quorum(scene: Scene) -> None:
    found = quorum_of(scene, "__cluster_metadata").topics[0].partitions[0]
    assert (int(found.error_code), found.leader_id) == (0, 1)
    (voter,) = found.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, found.high_watermark)
    other = quorum_of(scene, "orders").topics[0].partitions[0]
    assert other.error_code == UNKNOWN_PARTITION


def test_node_9_quorum_cannot_grow(scene: Scene) -> None:
    listener = add_voter.Listener(name="CONTROLLER", host="127.0.0.1", port=9093)
    answer = scene.ask(
        add_voter.AddRaftVoterRequest(
            cluster_id=None,
            timeout=milliseconds(1_000),
            voter_id=2,
            voter_directory_id=UUID(int=7),
            listeners=(listener,),
        )
    )
    assert answer.error_code == UNSUPPORTED_VERSION


def test_node_10_unknown_broker_is_not_registered(scene: Scene) -> None:
    assert scene.ask(UnregisterBrokerRequest(broker_id=7)).error_code == BROKER_ID_NOT_REGISTERED


def hello(cluster_id: str | None, node_id: int) -> ApiVersionsRequest:
    return ApiVersionsRequest(
        client_software_name="spec",
        client_software_version="1",
        cluster_id=cluster_id,
        node_id=node_id,  # type: ignore[arg-type]
    )


def cluster(scene: Scene, endpoint_type: int) -> Any:
    return scene.ask(
        DescribeClusterRequest(
            include_cluster_authorized_operations=True,
            endpoint_type=endpoint_type,  # type: ignore[arg-type]
            include_fenced_brokers=False,
        )
    )


def test_node_11_client_that_expects_another_node_must_rebootstrap(scene: Scene) -> None:
    cluster_id = cluster(scene, 1).cluster_id
    for expected, asked in (
        (0, hello(None, -1)),
        (0, hello(cluster_id, 1)),
        (REBOOTSTRAP_REQUIRED, hello(cluster_id, 2)),
        (REBOOTSTRAP_REQUIRED, hello("another", 1)),
        (INVALID_REQUEST, hello(None, 1)),
        (INVALID_REQUEST, hello(cluster_id, -1)),
    ):
        assert scene.ask(asked).error_code == expected


def test_node_12_cluster_is_described_to_clients_of_brokers(scene: Scene) -> None:
    described = cluster(scene, 1)
    assert [broker.broker_id for broker in described.brokers] == [1]
    assert described.cluster_authorized_operations == 8_096
    assert cluster(scene, 2).error_code == MISMATCHED_ENDPOINT
    assert cluster(scene, 3).error_code == UNSUPPORTED_ENDPOINT


def special_offset(scene: Scene, topic: Topic, timestamp: int, messages: Any) -> tuple[int, int]:
    """Error code and offset."""
    partition = messages.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    asked = messages.ListOffsetsTopic(name=topic.name, partitions=(partition,))
    fields = {} if messages is list_offsets_8 else {"timeout": milliseconds(1_000)}
    request = messages.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=(asked,), **fields
    )
    found = scene.ask(request).topics[0].partitions[0]
    return int(found.error_code), found.offset


def test_node_13_special_offsets_belong_to_versions_of_list_offsets(scene: Scene) -> None:
    topic = scene.topic(retention_ms="-1")
    scene.produce(topic, 1, at_ms=3_000)
    scene.produce(topic, 1, at_ms=2_000)
    for timestamp, offset in ((-1, 2), (-2, 0), (-3, 0), (-4, 0), (-5, -1), (-6, -1), (2_500, 0)):
        assert special_offset(scene, topic, timestamp, list_offsets) == (0, offset)
        unknown = timestamp in (-5, -6)
        expected = (UNSUPPORTED_VERSION, -1) if unknown else (0, offset)
        assert special_offset(scene, topic, timestamp, list_offsets_8) == expected
    assert special_offset(scene, topic, -7, list_offsets) == (UNSUPPORTED_VERSION, -1)


def test_node_14_deleting_an_unknown_group_has_a_text(scene: Scene) -> None:
    group = scene.new_name("group")
    (result,) = scene.ask(DeleteGroupsRequest(groups_names=(group,))).results  # type: ignore[arg-type]
    assert result.error_code == GROUP_ID_NOT_FOUND
    assert result.error_message is None or group in result.error_message


def test_node_15_client_metrics_resources_are_checked_and_listed(scene: Scene) -> None:
    name = scene.new_name("metrics")
    for setting, value, expected in (
        ("interval.ms", "99", INVALID_REQUEST),
        ("color", "red", INVALID_REQUEST),
        ("match", "client_id", INVALID_CONFIG),
        ("interval.ms", "1000", 0),
    ):
        answer = scene.alter_configs(CLIENT_METRICS, name, {setting: value})
        assert answer.error_code == expected, setting
    assert scene.configs(CLIENT_METRICS, name) == {
        "interval.ms": "1000",
        "match": "",
        "metrics": "",
    }
    listed = scene.ask(ListConfigResourcesRequest(resource_types=(CLIENT_METRICS,)))  # type: ignore[arg-type]
    assert name in [resource.resource_name for resource in listed.config_resources]
