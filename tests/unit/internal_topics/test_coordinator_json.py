"""Coordinators' records as JSON: names, defaults, tombstones, and what nobody here knows."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest

from sharegroup.internal_topics.coordinator_json import INTERNAL_TOPICS, coordinator_json
from sharegroup.wire.internal_topics.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from sharegroup.wire.internal_topics.coordinator_records import (
    RecordClasses,
    encode_key,
    encode_value,
)
from sharegroup.wire.internal_topics.group_records import TargetAssignmentMetadataValue
from sharegroup.wire.internal_topics.share_group_records import (
    SHARE_GROUP_RECORDS,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupTargetAssignmentMetadataKey,
)
from sharegroup.wire.internal_topics.share_state_records import (
    SHARE_STATE_RECORDS,
    ShareSnapshotKey,
    ShareUpdateKey,
    ShareUpdateValue,
    StoredStateBatch,
)
from sharegroup.wire.internal_topics.transaction_records import (
    OldTransactionLogValue,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from tests.faults.tokens import full_message

TOPIC_ID = UUID(int=1)
BATCH = StoredStateBatch(first_offset=5, last_offset=9, delivery_state=2, delivery_count=1)


def update(delivery_complete_count: int) -> dict[str, object]:
    key = ShareUpdateKey(group_id="g", topic_id=TOPIC_ID, partition=3)
    value = ShareUpdateValue(
        snapshot_epoch=1,
        leader_epoch=2,
        start_offset=-1,
        delivery_complete_count=delivery_complete_count,
        state_batches=(BATCH,),
    )
    return coordinator_json(SHARE_STATE_RECORDS, encode_key(key), encode_value(value))


def test_key_and_value_have_kafkas_names_in_kafkas_order() -> None:
    key = {"groupId": "g", "topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partition": 3}
    batch = {"firstOffset": 5, "lastOffset": 9, "deliveryState": 2, "deliveryCount": 1}
    assert update(5) == {
        "key": {"type": 1, "data": key},
        "value": {
            "version": 0,
            "data": {
                "snapshotEpoch": 1,
                "leaderEpoch": 2,
                "startOffset": -1,
                "deliveryCompleteCount": 5,
                "stateBatches": [batch],
            },
        },
    }


@pytest.mark.parametrize(
    ("classes", "key", "value"),
    [
        pytest.param(classes, key, value, id=value.__name__)
        for classes in INTERNAL_TOPICS.values()
        for key, *values in classes.values()
        for value in values
    ],
)
def test_every_record_that_a_broker_writes_is_shown(
    classes: RecordClasses, key: type[Any], value: type[Any]
) -> None:
    stored = full_message(value)
    shown = coordinator_json(classes, encode_key(full_message(key)), encode_value(stored))
    assert "unknown" not in shown
    assert shown["key"]["type"] == key.__record_type__
    assert len(shown["value"]["data"]) == len(fields(stored))
    json.dumps(shown)


def test_types_of_all_groups_are_known() -> None:
    """Those of Kafka's ``CoordinatorRecordType`` that this broker writes."""
    assert set(INTERNAL_TOPICS["__consumer_offsets"]) == {*range(1, 9), *range(10, 17)}


def test_tagged_field_with_its_default_is_left_out() -> None:
    value = update(-1)["value"]
    assert isinstance(value, dict)
    assert "deliveryCompleteCount" not in value["data"]
    key = ShareGroupTargetAssignmentMetadataKey(group_id="g")
    found = coordinator_json(
        SHARE_GROUP_RECORDS,
        encode_key(key),
        encode_value(TargetAssignmentMetadataValue(assignment_epoch=4)),
    )
    assert found["value"] == {"version": 0, "data": {"assignmentEpoch": 4}}


def test_null_is_null() -> None:
    key = ShareGroupMemberMetadataKey(group_id="g", member_id="m")
    value = ShareGroupMemberMetadataValue(
        rack_id=None, client_id="c", client_host="h", subscribed_topic_names=("a", "b")
    )
    found = coordinator_json(SHARE_GROUP_RECORDS, encode_key(key), encode_value(value))
    assert found["value"]["data"] == {
        "rackId": None,
        "clientId": "c",
        "clientHost": "h",
        "subscribedTopicNames": ["a", "b"],
    }


def test_tombstone_has_a_value_of_null() -> None:
    key = ShareSnapshotKey(group_id="g", topic_id=TOPIC_ID, partition=0)
    found = coordinator_json(SHARE_STATE_RECORDS, encode_key(key), None)
    assert found["key"]["type"] == 0
    assert found["value"] is None


def test_unknown_records_are_printed_as_base64() -> None:
    assert coordinator_json(SHARE_GROUP_RECORDS, b"\x00\x01\xff", b"\x00\x04\xfe") == {
        "unknown": "record type 1",
        "key": {"type": 1, "data": "/w=="},
        "value": {"version": 4, "data": "/g=="},
    }
    newer = coordinator_json(SHARE_GROUP_RECORDS, b"\x00\x0b\x00\x01g", b"\x00\x09")
    assert "expected version 0" in newer["unknown"]
    assert newer["value"] == {"version": 9, "data": ""}
    assert coordinator_json(SHARE_GROUP_RECORDS, None, b"")["unknown"] == "no key with a type"


def test_consumer_groups_bytes_are_base64() -> None:
    key = GroupMetadataKey(group="g")
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout=300,
        session_timeout=45,
        subscription=b"\x00\x01",
        assignment=b"",
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="m", members=(member,)
    )
    classes = INTERNAL_TOPICS["__consumer_offsets"]
    found = coordinator_json(classes, encode_key(key), encode_value(value))
    assert found["key"] == {"type": 2, "data": {"group": "g"}}
    assert found["value"] == {
        "version": 3,
        "data": {
            "protocolType": "consumer",
            "generation": 3,
            "protocol": "range",
            "leader": "m",
            "currentStateTimestamp": -1,
            "members": [
                {
                    "memberId": "m",
                    "groupInstanceId": None,
                    "clientId": "c",
                    "clientHost": "/h",
                    "rebalanceTimeout": 300,
                    "sessionTimeout": 45,
                    "subscription": "AAE=",
                    "assignment": "",
                }
            ],
        },
    }


def test_state_of_a_transaction_has_its_name() -> None:
    key = encode_key(TransactionLogKey(transactional_id="payments-1"))
    value = TransactionLogValue(
        producer_id=7,
        previous_producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=60_000,
        transaction_status=2,
        transaction_partitions=(PartitionsSchema(topic="receipts", partition_ids=(0, 2)),),
        transaction_last_update_timestamp_ms=1_700,
        transaction_start_timestamp_ms=1_500,
        client_transaction_version=2,
    )
    classes = INTERNAL_TOPICS["__transaction_state"]
    assert coordinator_json(classes, key, encode_value(value)) == {
        "key": {"type": 0, "data": {"transactionalId": "payments-1"}},
        "value": {
            "version": 1,
            "data": {
                "producerId": 7,
                "previousProducerId": 7,
                "producerEpoch": 2,
                "transactionTimeoutMs": 60_000,
                "transactionStatus": "PrepareCommit",
                "transactionPartitions": [{"topic": "receipts", "partitionIds": [0, 2]}],
                "transactionLastUpdateTimestampMs": 1_700,
                "transactionStartTimestampMs": 1_500,
                "clientTransactionVersion": 2,
            },
        },
    }
    assert coordinator_json(classes, key, None)["value"] is None
    old = OldTransactionLogValue(
        producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=60_000,
        transaction_status=7,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=1_700,
        transaction_start_timestamp_ms=-1,
    )
    found = coordinator_json(classes, key, encode_value(old))["value"]
    assert (found["version"], found["data"]["transactionPartitions"]) == (0, None)
    assert found["data"]["transactionStatus"] == "7", "a state of Kafka that is not written here"
