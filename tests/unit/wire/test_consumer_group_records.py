"""The records of consumer groups, byte by byte as Kafka's schemas say; and what members say."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from sharegroup.wire.codec.decoder import DecodeError
from sharegroup.wire.internal_topics.classic_group_records import (
    CLASSIC_GROUP_RECORDS,
    ExpiringOffsetCommitValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from sharegroup.wire.internal_topics.consumer_protocol import subscribed_topics
from sharegroup.wire.internal_topics.coordinator_records import (
    decode_record,
    encode_key,
    encode_value,
)

TOPIC_ID = UUID(int=1)
OFFSET_KEY = OffsetCommitKey(group="g", topic="t", partition=3)
MEMBER = MemberMetadata(
    member_id="m",
    group_instance_id=None,
    client_id="c",
    client_host="h",
    rebalance_timeout=2,
    session_timeout=1,
    subscription=b"s",
    assignment=b"aa",
)
CASES = [
    (
        OFFSET_KEY,
        OffsetCommitValue(
            offset=5, leader_epoch=1, metadata="m", commit_timestamp=9, topic_id=TOPIC_ID
        ),
        "0001 000167 000174 00000003",
        (
            "0004 0000000000000005 00000001 026d 0000000000000009"
            " 01 00 10 00000000000000000000000000000001"
        ),
    ),
    (
        OFFSET_KEY,
        ExpiringOffsetCommitValue(offset=5, metadata="", commit_timestamp=9, expire_timestamp=10),
        "0001 000167 000174 00000003",
        "0001 0000000000000005 0000 0000000000000009 000000000000000a",
    ),
    (
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="p",
            generation=2,
            protocol="r",
            leader="m",
            current_state_timestamp=7,
            members=(MEMBER,),
        ),
        "0002 000167",
        (
            "0003 000170 00000002 000172 00016d 0000000000000007 00000001"
            " 00016d ffff 000163 000168 00000002 00000001 00000001 73 00000002 6161"
        ),
    ),
    (
        GroupMetadataKey(group="g"),
        GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=()),
        "0002 000167",
        "0003 0000 00000000 ffff ffff ffffffffffffffff 00000000",
    ),
]


@pytest.mark.parametrize(("key", "value", "key_hex", "value_hex"), CASES)
def test_records_have_kafkas_bytes(key: Any, value: Any, key_hex: str, value_hex: str) -> None:
    key_bytes, value_bytes = bytes.fromhex(key_hex), bytes.fromhex(value_hex)
    assert (encode_key(key), encode_value(value)) == (key_bytes, value_bytes)
    assert decode_record(CLASSIC_GROUP_RECORDS, key_bytes, value_bytes) == (key, value)
    assert decode_record(CLASSIC_GROUP_RECORDS, key_bytes, None) == (key, None)


def test_unknown_version_is_an_error() -> None:
    with pytest.raises(DecodeError, match="expected version 4"):
        decode_record(CLASSIC_GROUP_RECORDS, encode_key(OFFSET_KEY), b"\0\5")


@pytest.mark.parametrize("version", [0, 1, 3, 99])
def test_topics_are_read_from_every_subscription_version(version: int) -> None:
    data = version.to_bytes(2, "big") + bytes.fromhex("00000002 000161 000162 ffffffff 0102")
    assert subscribed_topics(data) == {"a", "b"}


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0"])
def test_metadata_that_is_no_subscription_is_not_understood(data: bytes) -> None:
    assert subscribed_topics(data) is None
