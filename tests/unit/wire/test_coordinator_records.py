"""Coordinator records have the bytes that Kafka's schemas prescribe, and come back the same."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st
from kio.serial import entity_reader

from sharegroup.wire.codec.decoder import DecodeError
from sharegroup.wire.codec.encoder import EncodeError
from sharegroup.wire.codec.schema import message_fields
from sharegroup.wire.internal_topics.classic_group_records import CLASSIC_GROUP_RECORDS
from sharegroup.wire.internal_topics.coordinator_records import (
    decode_record,
    encode_key,
    encode_value,
)
from sharegroup.wire.internal_topics.group_records import (
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataValue,
    TopicPartitions,
)
from sharegroup.wire.internal_topics.modern_group_records import MODERN_GROUP_RECORDS
from sharegroup.wire.internal_topics.share_group_records import (
    SHARE_GROUP_RECORDS,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    TopicInfo,
    TopicPartitionsInfo,
)
from sharegroup.wire.internal_topics.share_state_records import (
    SHARE_STATE_RECORDS,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StoredStateBatch,
)
from sharegroup.wire.internal_topics.transaction_records import TRANSACTION_RECORDS
from tests.unit.wire.messages import by_kio, messages, random_message

EVERY_TABLE = (
    SHARE_STATE_RECORDS, SHARE_GROUP_RECORDS, CLASSIC_GROUP_RECORDS, MODERN_GROUP_RECORDS,
    TRANSACTION_RECORDS,
)  # fmt: skip

TOPIC_ID = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
TOPIC_ID_HEX = "000102030405060708090a0b0c0d0e0f"
BATCH = StoredStateBatch(first_offset=7, last_offset=9, delivery_state=2, delivery_count=1)
BATCH_HEX = "0000000000000007000000000000000902000100"
PARTITIONS = TopicPartitions(topic_id=TOPIC_ID, partitions=(0, 2))
PARTITIONS_HEX = TOPIC_ID_HEX + "03000000000000000200"

# Written out from the fields, types and tags of Kafka's schema files.
LAYOUTS = [
    (
        ShareSnapshotKey(group_id="g", topic_id=TOPIC_ID, partition=3),
        "0000000167" + TOPIC_ID_HEX + "00000003",
        ShareSnapshotValue(
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=5,
            delivery_complete_count=4,
            create_timestamp=6,
            write_timestamp=7,
            state_batches=(BATCH,),
        ),
        "00000000000100000002000000030000000000000005"
        "0000000000000006000000000000000702" + BATCH_HEX + "01000400000004",
    ),
    (
        ShareUpdateKey(group_id="g", topic_id=TOPIC_ID, partition=3),
        "0001000167" + TOPIC_ID_HEX + "00000003",
        ShareUpdateValue(
            snapshot_epoch=1, leader_epoch=3, start_offset=-1, state_batches=(BATCH, BATCH)
        ),
        "00000000000100000003ffffffffffffffff03" + BATCH_HEX + BATCH_HEX + "00",
    ),
    (
        ShareGroupMemberMetadataKey(group_id="g", member_id="m"),
        "000a00016700016d",
        ShareGroupMemberMetadataValue(
            rack_id=None, client_id="c", client_host="/h", subscribed_topic_names=("t", "u")
        ),
        "0000000263032f68030274027500",
    ),
    (
        ShareGroupMetadataKey(group_id="g"),
        "000b000167",
        ShareGroupMetadataValue(epoch=4, metadata_hash=-2),
        "000000000004fffffffffffffffe00",
    ),
    (
        ShareGroupTargetAssignmentMetadataKey(group_id="g"),
        "000c000167",
        TargetAssignmentMetadataValue(assignment_epoch=4, assignment_timestamp=9),
        "0000000000040100080000000000000009",
    ),
    (
        ShareGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        "000d00016700016d",
        TargetAssignmentMemberValue(topic_partitions=(PARTITIONS,)),
        "000002" + PARTITIONS_HEX + "00",
    ),
    (
        ShareGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        "000e00016700016d",
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=3, previous_member_epoch=2, state=0, assigned_partitions=(PARTITIONS,)
        ),
        "000000000003000000020002" + PARTITIONS_HEX + "00",
    ),
    (
        ShareGroupStatePartitionMetadataKey(group_id="g"),
        "000f000167",
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=(),
            initialized_topics=(
                TopicPartitionsInfo(topic_id=TOPIC_ID, topic_name="t", partitions=(1,)),
            ),
            deleting_topics=(TopicInfo(topic_id=TOPIC_ID, topic_name="u"),),
        ),
        "000001"
        "02" + TOPIC_ID_HEX + "0274020000000100"
        "02" + TOPIC_ID_HEX + "027500"
        "00",
    ),
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: type(layout[0]).__name__)
def test_record_has_kafkas_bytes_and_survives_a_round_trip(layout):
    key, key_hex, value, value_hex = layout
    assert encode_key(key).hex() == key_hex
    assert encode_value(value).hex() == value_hex
    classes = SHARE_STATE_RECORDS if key_hex < "0002" else SHARE_GROUP_RECORDS
    read = decode_record(classes, bytes.fromhex(key_hex), bytes.fromhex(value_hex))
    assert read == (key, value)
    assert decode_record(classes, bytes.fromhex(key_hex), None) == (key, None)


@pytest.mark.parametrize(
    "message_class",
    [type_ for pair in (SHARE_STATE_RECORDS | SHARE_GROUP_RECORDS).values() for type_ in pair],
    ids=lambda type_: type_.__name__,
)
def test_random_records_are_encoded_and_decoded_as_by_kio(message_class):
    dice = random.Random(message_class.__name__)
    for _ in range(20):
        message = random_message(message_class, dice)
        written = by_kio(message)
        encoded = encode_key if message_class.__name__.endswith("Key") else encode_value
        assert encoded(message)[2:] == written
        assert entity_reader(message_class)(written, 0)[0] == message


@pytest.mark.parametrize(
    ("classes", "record_type"),
    [(classes, record_type) for classes in EVERY_TABLE for record_type in classes],
    ids=lambda given: f"type-{given}" if isinstance(given, int) else "",
)
@settings(max_examples=20)
@given(chosen=st.data(), text=st.sampled_from([None, "", "x" * 32_767, "\U0010ffff" * 8_191]))
def test_any_record_is_read_back(classes, record_type, chosen, text):
    """Also those of groups, offsets and transactions, with texts as long as a record allows."""
    key_class, *value_classes = classes[record_type]
    written_key = encode_key(with_text(chosen.draw(messages(key_class)), text))
    for value_class in value_classes:
        written = encode_value(with_text(chosen.draw(messages(value_class)), text))
        # Compared as bytes, because an id of zeros is read for None.
        key, value = decode_record(classes, written_key, written)
        assert (encode_key(key), encode_value(value)) == (written_key, written)


def with_text(message, text):
    """The message with ``text`` in place of each of its own texts; None leaves them."""
    texts = {
        field.name: text
        for field in message_fields(type(message))
        if text is not None and isinstance(getattr(message, field.name), str)
    }
    return replace(message, **texts)


def test_text_that_no_record_can_have_is_not_written():
    for text, why in (("x" * 32_768, "32767 are allowed"), ("\ud800", "can't encode")):
        with pytest.raises(EncodeError, match=f"ShareGroupMetadataKey.group_id: .*{why}"):
            encode_key(ShareGroupMetadataKey(group_id=text))


def test_every_record_type_has_an_expected_layout():
    every = SHARE_STATE_RECORDS | SHARE_GROUP_RECORDS
    assert [(type(key), type(value)) for key, _, value, _ in LAYOUTS] == list(every.values())


def test_record_type_of_another_coordinator_is_none():
    assert decode_record(SHARE_GROUP_RECORDS, b"\0\0\0\1g", b"\0\0") is None
    assert decode_record(SHARE_STATE_RECORDS, b"", b"") is None


def test_value_of_a_later_version_is_refused():
    key = encode_key(ShareGroupMetadataKey(group_id="g"))
    with pytest.raises(DecodeError, match="ShareGroupMetadataValue: expected version 0"):
        decode_record(SHARE_GROUP_RECORDS, key, b"\0\1" + bytes(13))


def test_damaged_record_is_refused():
    key, _, value, _ = LAYOUTS[0]
    key_bytes, value_bytes = encode_key(key), encode_value(value)
    with pytest.raises(DecodeError):
        decode_record(SHARE_STATE_RECORDS, key_bytes[:-1], value_bytes)
    with pytest.raises(DecodeError):
        decode_record(SHARE_STATE_RECORDS, key_bytes, value_bytes[:-1])
    with pytest.raises(DecodeError, match="found 1 more"):
        decode_record(SHARE_STATE_RECORDS, key_bytes, value_bytes + b"\0")
