"""The probes of requests about records, topics and transactions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from sharegroup.protocol_enums import AclOperation, AclResourceType
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.authorization.messages import message
from tests.authorization.probe import (
    CLUSTER_FAILED,
    TOPIC_FAILED,
    TRANSACTIONAL_ID_FAILED,
    Names,
    Probe,
    errors,
    need,
)

SECOND = timedelta(seconds=1)
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
TRANSACTIONAL_ID = AclResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DELETE, ALTER, DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
CLUSTER_ACTION, DESCRIBE_CONFIGS = AclOperation.CLUSTER_ACTION, AclOperation.DESCRIBE_CONFIGS
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE

PRODUCER_ID = 4_000_000
UNKNOWN_TOPIC, NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_ID_MAPPING = 3, 6, 49
NOT_ASKED = -(2**31)


def bits(*operations: AclOperation) -> int:
    """Return the value of an ``authorized_operations`` field."""
    return sum(1 << operation for operation in operations)


def produce(topic_id: UUID, transactional_id: str | None = None) -> Any:
    """Return a Produce of one record."""
    return _produce(None, {"topic_id": topic_id}, transactional_id)


def _produce(
    version: int | None, topic: dict[str, Any], transactional_id: str | None = None
) -> Any:
    transactional = {} if transactional_id is None else TRANSACTIONAL_BATCH
    batch = encode_batch([SimpleRecord(None, b"probe", 1)], **transactional)
    partition = {"index": 0, "records": batch}
    return message(
        0,
        version,
        transactional_id=transactional_id,
        acks=1,
        timeout=SECOND,
        topic_data=[{**topic, "partition_data": [partition]}],
    )


TRANSACTIONAL_BATCH: dict[str, Any] = {
    "producer_id": PRODUCER_ID,
    "producer_epoch": 0,
    "base_sequence": 0,
    "is_transactional": True,
}


def _fetch(topic_id: UUID, **more: Any) -> Any:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "partition_max_bytes": 1000,
    }
    topics = [{"topic_id": topic_id, "partitions": [partition]}]
    return message(1, max_bytes=1000, session_epoch=-1, topics=topics, **more)


def _fetch_by_name(topic: str, replica_id: int = -1) -> Any:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "partition_max_bytes": 1000,
    }
    topics = [{"topic": topic, "partitions": [partition]}]
    return message(1, 12, replica_id=replica_id, max_bytes=1000, session_epoch=-1, topics=topics)


def _metadata(*, creates: bool = False, asks: bool = False, **topic: Any) -> Any:
    return message(
        3,
        topics=[{"topic_id": None, "name": None, **topic}] if topic else None,
        allow_auto_topic_creation=creates,
        include_topic_authorized_operations=asks,
    )


def _create_topics(name: str) -> Any:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    return message(19, topics=[topic], timeout=SECOND, validate_only=True)


def _delete_topics(**topic: Any) -> Any:
    return message(20, topics=[{"name": None, "topic_id": None, **topic}], timeout=SECOND)


def _leader_epoch(names: Names) -> Any:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return message(23, replica_id=-2, topics=[{"topic": names.topic, "partitions": [partition]}])


def _add_partitions(names: Names) -> Any:
    return message(
        24,
        3,
        v3_and_below_transactional_id=names.transactional_id,
        v3_and_below_producer_id=PRODUCER_ID,
        v3_and_below_topics=[{"name": names.topic, "partitions": [0]}],
    )


def _add_partitions_of_several(names: Names) -> Any:
    transaction = {
        "transactional_id": names.transactional_id,
        "producer_id": PRODUCER_ID,
        "topics": [{"name": names.topic, "partitions": [0]}],
    }
    return message(24, transactions=[transaction])


def _transaction_markers(names: Names) -> Any:
    marker = {
        "producer_id": PRODUCER_ID,
        "transaction_result": True,
        "topics": [{"name": names.absent, "partition_indexes": [0]}],
    }
    return message(27, markers=[marker])


def _transactional_offsets(names: Names) -> Any:
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    return message(
        28,
        transactional_id=names.transactional_id,
        group_id=names.group,
        producer_id=PRODUCER_ID,
        generation_id=-1,
        topics=[{"topic_id": names.topic_id, "partitions": [partition]}],
    )


def _transactional_offsets_by_name(names: Names) -> Any:
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    return message(
        28,
        5,
        transactional_id=names.transactional_id,
        group_id=names.group,
        producer_id=PRODUCER_ID,
        generation_id=-1,
        topics=[{"name": names.topic, "partitions": [partition]}],
    )


def _described_partitions(*names: str) -> Any:
    return message(
        75, topics=[{"name": name} for name in names], response_partition_limit=2000, cursor=None
    )


RECORDS = (
    Probe(
        "Produce",
        lambda names: produce(names.topic_id),
        (need(WRITE, TOPIC),),
    ),
    Probe(
        "Produce: a transactional batch",
        lambda names: produce(names.topic_id, names.transactional_id),
        (need(WRITE, TRANSACTIONAL_ID), need(WRITE, TOPIC)),
        errors(INVALID_PRODUCER_ID_MAPPING),
    ),
    Probe(
        "Produce: by name",
        lambda names: _produce(12, {"name": names.topic}),
        (need(WRITE, TOPIC),),
    ),
    Probe("Fetch", lambda names: _fetch(names.topic_id), (need(READ, TOPIC),)),
    Probe("Fetch: by name", lambda names: _fetch_by_name(names.topic), (need(READ, TOPIC),)),
    Probe(
        "Fetch: of a replica, by name",
        lambda names: _fetch_by_name(names.topic, 7),
        (need(CLUSTER_ACTION, CLUSTER, refused=errors(TOPIC_FAILED)),),
        errors(NOT_LEADER_OR_FOLLOWER),
        ours=errors(),
    ),
    Probe(
        "Fetch: of a replica",
        lambda names: _fetch(names.topic_id, replica_state={"replica_id": 7, "replica_epoch": -1}),
        (need(CLUSTER_ACTION, CLUSTER, refused=errors(TOPIC_FAILED)),),
        errors(NOT_LEADER_OR_FOLLOWER),
        ours=errors(),
    ),
    Probe(
        "ListOffsets",
        lambda names: message(
            2,
            replica_id=-1,
            topics=[
                {
                    "name": names.topic,
                    "partitions": [
                        {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
                    ],
                }
            ],
        ),
        (need(DESCRIBE, TOPIC),),
    ),
    Probe(
        "DeleteRecords",
        lambda names: message(
            21,
            topics=[{"name": names.topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
            timeout=SECOND,
        ),
        (need(DELETE, TOPIC),),
    ),
    Probe("OffsetForLeaderEpoch", _leader_epoch, (need(DESCRIBE, TOPIC),)),
    Probe(
        "OffsetForLeaderEpoch: of a broker",
        _leader_epoch,
        (need(CLUSTER_ACTION, CLUSTER, refused=errors(TOPIC_FAILED)),),
    ),
)

TOPICS = (
    Probe(
        "Metadata: by name",
        lambda names: _metadata(name=names.topic),
        (need(DESCRIBE, TOPIC),),
        reveals=("topic_id",),
    ),
    Probe(
        "Metadata: by id",
        lambda names: _metadata(topic_id=names.topic_id),
        (need(DESCRIBE, TOPIC),),
        reveals=("topic",),
    ),
    Probe(
        "Metadata: of all topics",
        lambda _: _metadata(),
        (need(DESCRIBE, TOPIC, hides=("topic", "topic_id")),),
    ),
    Probe(
        "Metadata: creates a topic, CREATE on the cluster",
        lambda names: _metadata(name=names.absent, creates=True),
        (need(CREATE, CLUSTER, refused=errors(TOPIC_FAILED)), need(DESCRIBE, TOPIC, "absent")),
        errors(UNKNOWN_TOPIC),
        ours=errors(),
    ),
    Probe(
        "Metadata: creates a topic, CREATE on the topic",
        lambda names: _metadata(name=names.absent, creates=True),
        (need(CREATE, TOPIC, "absent"), need(DESCRIBE, TOPIC, "absent")),
        errors(UNKNOWN_TOPIC),
        ours=errors(),
    ),
    Probe(
        "Metadata: operations on a topic",
        lambda names: _metadata(name=names.topic, asks=True),
        (
            need(DESCRIBE, TOPIC, operations=[NOT_ASKED]),
            need(DESCRIBE_CONFIGS, TOPIC, refused=errors(), operations=[bits(DESCRIBE)]),
        ),
        operations=frozenset({bits(DESCRIBE, DESCRIBE_CONFIGS)}),
    ),
    Probe(
        "Metadata: of all topics, version 0",
        lambda _: message(3, 0, topics=[]),
        (need(DESCRIBE, TOPIC, hides=("topic",)),),
    ),
    Probe(
        "Metadata: operations on the cluster",
        lambda _: message(3, 10, topics=[], include_cluster_authorized_operations=True),
        (need(DESCRIBE, CLUSTER, refused=errors(), operations=[0]),),
        operations=frozenset({bits(DESCRIBE)}),
    ),
    Probe(
        "DescribeTopicPartitions",
        lambda names: _described_partitions(names.topic),
        (need(DESCRIBE, TOPIC, operations=[NOT_ASKED]),),
        operations=frozenset({bits(DESCRIBE)}),
    ),
    Probe(
        "DescribeTopicPartitions: of all topics",
        lambda _: _described_partitions(),
        (need(DESCRIBE, TOPIC, hides=("topic", "topic_id")),),
        operations=frozenset({bits(DESCRIBE)}),
    ),
    Probe(
        "CreateTopics: CREATE on the cluster",
        lambda names: _create_topics(names.absent),
        (
            need(CREATE, CLUSTER, refused=errors(TOPIC_FAILED)),
            need(
                DESCRIBE_CONFIGS,
                TOPIC,
                "absent",
                refused=errors(topic_config_error_code=TOPIC_FAILED),
            ),
        ),
    ),
    Probe(
        "CreateTopics: CREATE on the topic",
        lambda names: _create_topics(names.absent),
        (
            need(CREATE, TOPIC, "absent"),
            need(
                DESCRIBE_CONFIGS,
                TOPIC,
                "absent",
                refused=errors(topic_config_error_code=TOPIC_FAILED),
            ),
        ),
    ),
    Probe(
        "DeleteTopics: by name",
        lambda names: _delete_topics(name=names.own),
        (need(DELETE, TOPIC, "own"),),
        needs_own_topic=True,
        reveals=("own_id",),
    ),
    Probe(
        "DeleteTopics: by id",
        lambda names: _delete_topics(topic_id=names.own_id),
        (need(DELETE, TOPIC, "own"),),
        needs_own_topic=True,
        reveals=("own",),
    ),
    Probe(
        "DeleteTopics: a topic that does not exist",
        lambda names: _delete_topics(name=names.absent),
        (need(DESCRIBE, TOPIC, "absent"),),
        errors(UNKNOWN_TOPIC),
    ),
    Probe(
        "DeleteTopics: DELETE on the cluster",
        lambda names: _delete_topics(name=names.own),
        (need(DELETE, CLUSTER, refused=errors(TOPIC_FAILED)),),
        needs_own_topic=True,
    ),
    Probe(
        "CreatePartitions",
        lambda names: message(
            37,
            topics=[{"name": names.topic, "count": 2, "assignments": None}],
            timeout=SECOND,
            validate_only=True,
        ),
        (need(ALTER, TOPIC),),
    ),
    Probe(
        "DescribeProducers",
        lambda names: message(61, topics=[{"name": names.topic, "partition_indexes": [0]}]),
        (need(READ, TOPIC),),
    ),
)

TRANSACTIONS = (
    Probe(
        "InitProducerId: a transactional id",
        lambda names: message(
            22,
            transactional_id=names.transactional_id,
            transaction_timeout=SECOND,
            producer_id=-1,
            producer_epoch=-1,
        ),
        (need(WRITE, TRANSACTIONAL_ID),),
    ),
    Probe(
        "InitProducerId: IDEMPOTENT_WRITE on the cluster",
        lambda _: message(22, transactional_id=None, producer_id=-1, producer_epoch=-1),
        (need(IDEMPOTENT_WRITE, CLUSTER),),
    ),
    Probe(
        "InitProducerId: WRITE on a topic",
        lambda _: message(22, transactional_id=None, producer_id=-1, producer_epoch=-1),
        (need(WRITE, TOPIC, refused=errors(CLUSTER_FAILED), on_any_name=True),),
    ),
    Probe(
        "AddPartitionsToTxn",
        _add_partitions,
        (
            need(
                WRITE,
                TRANSACTIONAL_ID,
                refused=errors(partition_error_code=TRANSACTIONAL_ID_FAILED),
            ),
            need(WRITE, TOPIC, refused=errors(partition_error_code=TOPIC_FAILED)),
        ),
        errors(partition_error_code=INVALID_PRODUCER_ID_MAPPING),
    ),
    Probe(
        "AddPartitionsToTxn: of a broker",
        _add_partitions_of_several,
        (
            need(
                CLUSTER_ACTION,
                CLUSTER,
                ours=errors(CLUSTER_FAILED, partition_error_code=CLUSTER_FAILED),
            ),
        ),
        errors(partition_error_code=INVALID_PRODUCER_ID_MAPPING),
    ),
    Probe(
        "AddOffsetsToTxn",
        lambda names: message(
            25,
            transactional_id=names.transactional_id,
            producer_id=PRODUCER_ID,
            group_id=names.group,
        ),
        (need(WRITE, TRANSACTIONAL_ID), need(READ, GROUP)),
        errors(INVALID_PRODUCER_ID_MAPPING),
    ),
    Probe(
        "EndTxn",
        lambda names: message(
            26, transactional_id=names.transactional_id, producer_id=PRODUCER_ID, committed=True
        ),
        (need(WRITE, TRANSACTIONAL_ID),),
        errors(INVALID_PRODUCER_ID_MAPPING),
    ),
    Probe(
        "WriteTxnMarkers: ALTER on the cluster",
        _transaction_markers,
        (need(ALTER, CLUSTER),),
        errors(UNKNOWN_TOPIC),
    ),
    Probe(
        "WriteTxnMarkers: CLUSTER_ACTION on the cluster",
        _transaction_markers,
        (need(CLUSTER_ACTION, CLUSTER),),
        errors(UNKNOWN_TOPIC),
    ),
    Probe(
        "TxnOffsetCommit",
        _transactional_offsets,
        (need(WRITE, TRANSACTIONAL_ID), need(READ, GROUP), need(READ, TOPIC)),
        errors(INVALID_PRODUCER_ID_MAPPING),
    ),
    Probe(
        "TxnOffsetCommit: by name",
        _transactional_offsets_by_name,
        (need(WRITE, TRANSACTIONAL_ID), need(READ, GROUP), need(READ, TOPIC)),
        errors(INVALID_PRODUCER_ID_MAPPING),
    ),
    Probe(
        "DescribeTransactions",
        lambda names: message(65, transactional_ids=[names.ledger]),
        (
            need(DESCRIBE, TRANSACTIONAL_ID, "ledger"),
            need(DESCRIBE, TOPIC, hides=("topic",)),
        ),
    ),
    Probe(
        "ListTransactions",
        lambda _: message(66, duration_filter=-1),
        (need(DESCRIBE, TRANSACTIONAL_ID, "ledger", hides=("ledger",)),),
    ),
)

PROBES = (*RECORDS, *TOPICS, *TRANSACTIONS)
