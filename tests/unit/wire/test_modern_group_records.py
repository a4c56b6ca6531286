"""The records of consumer groups of KIP-848, encoded and decoded.

The bytes were checked with Kafka 4.4's ``GroupCoordinatorRecordSerde`` (``tests/interop``).
"""

from __future__ import annotations

from uuid import UUID

import pytest

from sharegroup.broker.groups.modern_group_records import decode, encode
from sharegroup.core.groups.modern import records as core
from sharegroup.core.groups.modern.records import (
    ClassicMember,
    MemberState,
    ModernGroupRecord,
    ModernGroupRecordType,
    ModernGroupTombstone,
)
from sharegroup.core.groups.share.records import GroupEpoch, TargetAssignment, TargetAssignmentEpoch
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName
from sharegroup.wire.internal_topics import modern_group_records as wire
from sharegroup.wire.internal_topics.coordinator_records import encode_key, encode_value

GROUP, MEMBER = GroupId("g"), MemberId("m")
TOPIC = TopicId(UUID(int=1))

RECORDS: list[tuple[ModernGroupRecord, str, str | None]] = [
    (GroupEpoch(GROUP, 3, 0), "0003000167", "00000000000300"),
    (
        GroupEpoch(GROUP, 3, -5),
        "0003000167",
        "000000000003010008fffffffffffffffb",
    ),
    (
        core.ModernGroupMemberMetadata(
            GROUP, MEMBER, "i", None, "c", "/h", (TopicName("a"),), "", 300, None, None
        ),
        "000500016700016d",
        "0000026900026303" + "2f68" + "020261" + "01" + "0000012c" + "00" + "00",
    ),
    (
        core.ModernGroupMemberMetadata(
            GROUP,
            MEMBER,
            None,
            "r",
            "c",
            "/h",
            (),
            "x.*",
            300,
            "range",
            ClassicMember(100, (("range", b"xx"),)),
        ),
        "000500016700016d",
        "00000002720263032f68010478"
        "2e2a0000012c0672616e67650100"
        "11" + "01" + "00000064" + "02" + "0672616e6765" + "037878" + "00" + "00",
    ),
    (
        TargetAssignmentEpoch(GROUP, 3, 77),
        "0006000167",
        "000000000003010008000000000000004d",
    ),
    (
        TargetAssignment(
            GROUP, MEMBER, frozenset({TopicIdPartition(TOPIC, 1), TopicIdPartition(TOPIC, 0)})
        ),
        "000700016700016d",
        "000002" + "00" * 15 + "01" + "03" + "0000000000000001" + "00" + "00",
    ),
    (
        core.ModernGroupCurrentMemberAssignment(
            GROUP,
            MEMBER,
            3,
            2,
            MemberState.UNREVOKED_PARTITIONS,
            {TopicIdPartition(TOPIC, 4): 3},
            {},
        ),
        "000800016700016d",
        "0000" + "00000003" + "00000002" + "01" + "02" + "00" * 15 + "01" + "02" + "00000004"
        "01" + "00" + "05" + "02" + "00000003" + "01" + "00",
    ),
    (
        core.ModernGroupRegularExpression(GROUP, "x.*", frozenset({TopicName("a")}), 4, 5),
        "0010000167" + "0003" + "782e2a",
        "0000" + "020261" + "0000000000000004" + "0000000000000005" + "00",
    ),
    (ModernGroupTombstone(ModernGroupRecordType.METADATA, GROUP), "0003000167", None),
    (ModernGroupTombstone(ModernGroupRecordType.PARTITION_METADATA, GROUP), "0004000167", None),
    (
        ModernGroupTombstone(ModernGroupRecordType.CURRENT_MEMBER_ASSIGNMENT, GROUP, MEMBER),
        "000800016700016d",
        None,
    ),
    (
        ModernGroupTombstone(ModernGroupRecordType.REGULAR_EXPRESSION, GROUP, pattern="x.*"),
        "00100001670003782e2a",
        None,
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), RECORDS)
def test_records_have_kafkas_bytes(record: ModernGroupRecord, key: str, value: str | None) -> None:
    stored = (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert encode(record) == stored
    assert decode(*stored) == record


def test_partition_metadata_of_older_versions_is_recognized() -> None:
    topic = wire.TopicMetadata(
        topic_id=UUID(int=1), topic_name="a", num_partitions=2, partition_metadata=()
    )
    key = encode_key(wire.ConsumerGroupPartitionMetadataKey(group_id="g"))
    value = encode_value(wire.ConsumerGroupPartitionMetadataValue(topics=(topic,)))
    assert decode(key, value) == core.PartitionMetadata(GROUP)


def test_assignment_without_epochs_counts_as_made_in_the_members_epoch() -> None:
    """Kafka before version 4.3 stored no epoch for each partition."""
    topic = wire.AssignedTopicPartitions(topic_id=UUID(int=1), partitions=(0, 2))
    key = encode_key(wire.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"))
    value = encode_value(
        wire.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            state=99,
            assigned_partitions=(topic,),
            partitions_pending_revocation=(),
        )
    )
    record = decode(key, value)
    assert isinstance(record, core.ModernGroupCurrentMemberAssignment)
    assert record.assigned == {TopicIdPartition(TOPIC, 0): 7, TopicIdPartition(TOPIC, 2): 7}
    assert record.state is MemberState.UNKNOWN


def test_unknown_type_is_not_decoded() -> None:
    assert decode(b"\0\x63\0\1g", b"\0\0") is None
