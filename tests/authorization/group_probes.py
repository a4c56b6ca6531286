"""The probes of requests about groups: consumer groups of both protocols and share groups."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sharegroup.protocol_enums import AclOperation, AclResourceType
from tests.authorization.data_probes import NOT_ASKED, bits
from tests.authorization.messages import message
from tests.authorization.probe import TOPIC_FAILED, Names, Probe, errors, need

SECOND = timedelta(seconds=1)
MINUTE = timedelta(seconds=60)
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
TRANSACTIONAL_ID = AclResourceType.TRANSACTIONAL_ID
READ, DELETE, DESCRIBE = AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE
CLUSTER_ACTION, DESCRIBE_CONFIGS = AclOperation.CLUSTER_ACTION, AclOperation.DESCRIBE_CONFIGS
UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED = 25, 69, 79
UNKNOWN_TOPIC = 3

OF_GROUP, OF_TRANSACTION, OF_SHARE_PARTITION = 0, 1, 2


COMMITTED_OFFSET = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}


def offset_commit(group: str, topic_id: Any) -> Any:
    """Return an OffsetCommit of a client that is no member."""
    return message(
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[{"topic_id": topic_id, "partitions": [COMMITTED_OFFSET]}],
    )


def _offset_fetch(group: str, topics: Any) -> Any:
    return message(
        9, groups=[{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}]
    )


def find_coordinator(key_type: int, key: str) -> Any:
    """Return a FindCoordinator of one key."""
    return message(10, key_type=key_type, coordinator_keys=[key])


def consumer_heartbeat(group: str, member: str, *topics: str) -> Any:
    """Return the first ConsumerGroupHeartbeat of a member."""
    return message(
        68,
        group_id=group,
        member_id=member,
        rebalance_timeout=MINUTE,
        subscribed_topic_names=list(topics),
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=[],
    )


def share_heartbeat(group: str, member: str, *topics: str, epoch: int = 0) -> Any:
    """Return a ShareGroupHeartbeat."""
    return message(
        76,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=list(topics),
    )


def _share_fetch(names: Names, epoch: int = 0, acknowledged: Any = ()) -> Any:
    partition = {"partition_index": 0, "acknowledgement_batches": list(acknowledged)}
    return message(
        78,
        group_id=names.sharing,
        member_id=names.member,
        share_session_epoch=epoch,
        max_wait=timedelta(milliseconds=300 if epoch == 0 else 0),
        min_bytes=1,
        max_bytes=1000,
        max_records=1,
        batch_size=1,
        topics=[{"topic_id": names.topic_id, "partitions": [partition]}],
    )


def alter_offsets(group: str, topic: str) -> Any:
    """Return an AlterShareGroupOffsets of one partition."""
    partition = {"partition_index": 0, "start_offset": 0}
    return message(91, group_id=group, topics=[{"topic_name": topic, "partitions": [partition]}])


FIRST_RECORD = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}


def _share_acknowledge(names: Names) -> Any:
    partition = {"partition_index": 0, "acknowledgement_batches": [FIRST_RECORD]}
    return message(
        79,
        group_id=names.sharing,
        member_id=names.member,
        share_session_epoch=1,
        topics=[{"topic_id": names.topic_id, "partitions": [partition]}],
    )


def _state(api_key: int, **partition: Any) -> Any:
    def request(names: Names) -> Any:
        topic = {"topic_id": names.topic_id, "partitions": [{"partition": 0, **partition}]}
        return message(api_key, group_id=names.group, topics=[topic])

    return request


COORDINATORS = (
    Probe(
        "FindCoordinator: of a group",
        lambda names: find_coordinator(OF_GROUP, names.group),
        (need(DESCRIBE, GROUP),),
    ),
    Probe(
        "FindCoordinator: of one group",
        lambda names: message(10, 3, key_type=OF_GROUP, key=names.group),
        (need(DESCRIBE, GROUP),),
    ),
    Probe(
        "FindCoordinator: of a transactional id",
        lambda names: find_coordinator(OF_TRANSACTION, names.transactional_id),
        (need(DESCRIBE, TRANSACTIONAL_ID),),
    ),
    Probe(
        "FindCoordinator: of a share partition",
        lambda names: find_coordinator(
            OF_SHARE_PARTITION, f"{names.group}:AAAAAAAAAAAAAAAAAAAAAw:0"
        ),
        (need(CLUSTER_ACTION, CLUSTER),),
    ),
    Probe(
        "ListGroups",
        lambda _: message(16),
        (need(DESCRIBE, GROUP, "classic", hides=("classic",)),),
    ),
    Probe(
        "ListGroups: DESCRIBE on the cluster",
        lambda _: message(16),
        (need(DESCRIBE, CLUSTER, hides=("classic", "modern", "sharing")),),
    ),
    Probe(
        "DeleteGroups",
        lambda names: message(42, groups_names=[names.group]),
        (need(DELETE, GROUP),),
        errors(GROUP_ID_NOT_FOUND),
    ),
)

CONSUMER_GROUPS = (
    Probe(
        "OffsetCommit",
        lambda names: offset_commit(names.group, names.topic_id),
        (need(READ, GROUP), need(READ, TOPIC)),
    ),
    Probe(
        "OffsetCommit: by name",
        lambda names: message(
            8,
            9,
            group_id=names.group,
            generation_id_or_member_epoch=-1,
            topics=[{"name": names.topic, "partitions": [COMMITTED_OFFSET]}],
        ),
        (need(READ, GROUP), need(READ, TOPIC)),
    ),
    Probe(
        "OffsetFetch: one group, by name",
        lambda names: message(
            9,
            7,
            group_id=names.classic,
            topics=[{"name": names.topic, "partition_indexes": [0]}],
        ),
        (need(DESCRIBE, GROUP, "classic"), need(DESCRIBE, TOPIC)),
    ),
    Probe(
        "OffsetFetch",
        lambda names: _offset_fetch(
            names.classic, [{"topic_id": names.topic_id, "partition_indexes": [0]}]
        ),
        (need(DESCRIBE, GROUP, "classic"), need(DESCRIBE, TOPIC)),
    ),
    Probe(
        "OffsetFetch: of all topics",
        lambda names: _offset_fetch(names.classic, None),
        (need(DESCRIBE, GROUP, "classic"), need(DESCRIBE, TOPIC, hides=("topic_id",))),
    ),
    Probe(
        "OffsetDelete",
        lambda names: message(
            47,
            group_id=names.classic,
            topics=[{"name": names.topic, "partitions": [{"partition_index": 7}]}],
        ),
        (need(DELETE, GROUP, "classic"), need(READ, TOPIC)),
        errors(UNKNOWN_TOPIC),
    ),
    Probe(
        "JoinGroup",
        lambda names: message(
            11,
            group_id=names.group,
            session_timeout=MINUTE,
            rebalance_timeout=SECOND,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        ),
        (need(READ, GROUP),),
        errors(MEMBER_ID_REQUIRED),
    ),
    Probe(
        "Heartbeat",
        lambda names: message(12, group_id=names.group, generation_id=1, member_id="m"),
        (need(READ, GROUP),),
        errors(UNKNOWN_MEMBER_ID),
    ),
    Probe(
        "LeaveGroup",
        lambda names: message(
            13, group_id=names.group, members=[{"member_id": "m", "group_instance_id": None}]
        ),
        (need(READ, GROUP),),
        errors(UNKNOWN_MEMBER_ID),
    ),
    Probe(
        "SyncGroup",
        lambda names: message(
            14,
            group_id=names.group,
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
        ),
        (need(READ, GROUP),),
        errors(UNKNOWN_MEMBER_ID),
    ),
    Probe(
        "DescribeGroups",
        lambda names: message(15, groups=[names.classic], include_authorized_operations=True),
        (
            need(DESCRIBE, GROUP, "classic", operations=[NOT_ASKED]),
            need(DESCRIBE_CONFIGS, GROUP, "classic", errors(), operations=[bits(DESCRIBE)]),
        ),
        operations=frozenset({bits(DESCRIBE, DESCRIBE_CONFIGS)}),
    ),
    Probe(
        "ConsumerGroupHeartbeat",
        lambda names: consumer_heartbeat(names.group, names.member, names.topic),
        (need(READ, GROUP), need(DESCRIBE, TOPIC)),
    ),
    Probe(
        "ConsumerGroupDescribe",
        lambda names: message(69, group_ids=[names.modern], include_authorized_operations=True),
        (
            need(DESCRIBE, GROUP, "modern", operations=[NOT_ASKED]),
            need(DESCRIBE, TOPIC, refused=errors(TOPIC_FAILED), operations=[NOT_ASKED]),
        ),
        operations=frozenset({bits(DESCRIBE)}),
        reveals=("topic",),
    ),
)

SHARE_GROUPS = (
    Probe(
        "ShareGroupHeartbeat",
        lambda names: share_heartbeat(names.group, names.member, names.topic),
        (need(READ, GROUP), need(DESCRIBE, TOPIC)),
    ),
    Probe(
        "ShareGroupDescribe",
        lambda names: message(77, group_ids=[names.sharing], include_authorized_operations=True),
        (
            need(DESCRIBE, GROUP, "sharing", operations=[NOT_ASKED]),
            need(DESCRIBE, TOPIC, refused=errors(TOPIC_FAILED), operations=[NOT_ASKED]),
        ),
        operations=frozenset({bits(DESCRIBE)}),
        reveals=("topic",),
    ),
    Probe("ShareFetch", _share_fetch, (need(READ, GROUP, "sharing"), need(READ, TOPIC))),
    Probe(
        "ShareFetch: with acknowledgements",
        lambda names: _share_fetch(names, 1, [FIRST_RECORD]),
        (
            need(READ, GROUP, "sharing"),
            need(
                READ,
                TOPIC,
                refused=errors(TOPIC_FAILED, acknowledge_error_code=TOPIC_FAILED),
            ),
        ),
        before=(_share_fetch,),
    ),
    Probe(
        "ShareAcknowledge",
        _share_acknowledge,
        (need(READ, GROUP, "sharing"), need(READ, TOPIC)),
        before=(_share_fetch,),
    ),
    Probe(
        "DescribeShareGroupOffsets",
        lambda names: message(
            90,
            groups=[
                {
                    "group_id": names.sharing,
                    "topics": [{"topic_name": names.topic, "partitions": [0]}],
                }
            ],
        ),
        (need(DESCRIBE, GROUP, "sharing"), need(DESCRIBE, TOPIC)),
        reveals=("topic_id",),
    ),
    Probe(
        "DescribeShareGroupOffsets: of all topics",
        lambda names: message(90, groups=[{"group_id": names.sharing, "topics": None}]),
        (need(DESCRIBE, GROUP, "sharing"), need(DESCRIBE, TOPIC, hides=("topic", "topic_id"))),
    ),
    Probe(
        "AlterShareGroupOffsets",
        lambda names: alter_offsets(names.group, names.topic),
        (need(READ, GROUP), need(READ, TOPIC)),
        leaks=("topic_id",),
    ),
    Probe(
        "DeleteShareGroupOffsets",
        lambda names: message(92, group_id=names.idle, topics=[{"topic_name": names.absent}]),
        (need(DELETE, GROUP, "idle"), need(READ, TOPIC, "absent")),
        errors(UNKNOWN_TOPIC),
    ),
)

_initialize = _state(83, state_epoch=0, start_offset=0)

SHARE_STATES = tuple(
    Probe(title, request, (need(CLUSTER_ACTION, CLUSTER),), before=before)
    for title, request, before in (
        ("InitializeShareGroupState", _initialize, ()),
        ("ReadShareGroupState", _state(84, leader_epoch=0), (_initialize,)),
        (
            "WriteShareGroupState",
            _state(85, start_offset=0, delivery_complete_count=0),
            (_initialize,),
        ),
        ("DeleteShareGroupState", _state(86), ()),
        ("ReadShareGroupStateSummary", _state(87, leader_epoch=0), (_initialize,)),
    )
)

PROBES = (*COORDINATORS, *CONSUMER_GROUPS, *SHARE_GROUPS, *SHARE_STATES)
