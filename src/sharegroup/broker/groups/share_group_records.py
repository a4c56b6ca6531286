"""The stored form of the records of share groups in ``__consumer_offsets``, types 10 to 15.

The lists of topics that are being initialized or deleted are always written empty.
"""

from __future__ import annotations

from sharegroup.broker.groups.stored_records import (
    RecordCodec,
    StoredForm,
    loaded_assignment,
    stored_assignment,
)
from sharegroup.core.groups.share import records as core
from sharegroup.core.groups.share.records import (
    ShareGroupRecord,
    ShareGroupRecordType,
    ShareGroupTombstone,
)
from sharegroup.ids import TopicId, TopicName
from sharegroup.wire.internal_topics import share_group_records as wire

STABLE = 0
"""The member state in Kafka's records; members of share groups have no other state."""


def _stored_topic(topic: core.InitializedTopic) -> wire.TopicPartitionsInfo:
    return wire.TopicPartitionsInfo(
        topic_id=topic.topic_id,
        topic_name=topic.name,
        partitions=tuple(sorted(topic.partitions)),
    )


def _loaded_topic(topic: wire.TopicPartitionsInfo) -> core.InitializedTopic:
    return core.InitializedTopic(
        TopicId(topic.topic_id), TopicName(topic.topic_name), frozenset(topic.partitions)
    )


_FORMS = {
    ShareGroupRecordType.MEMBER_METADATA: StoredForm(core.ShareGroupMemberMetadata),
    ShareGroupRecordType.METADATA: StoredForm(core.GroupEpoch),
    ShareGroupRecordType.TARGET_ASSIGNMENT_METADATA: StoredForm(core.TargetAssignmentEpoch),
    ShareGroupRecordType.TARGET_ASSIGNMENT_MEMBER: StoredForm(
        core.TargetAssignment,
        {"topic_partitions": lambda record: stored_assignment(record.partitions)},
        {"partitions": lambda value: loaded_assignment(value.topic_partitions)},
    ),
    ShareGroupRecordType.CURRENT_MEMBER_ASSIGNMENT: StoredForm(
        core.ShareGroupCurrentMemberAssignment,
        {
            "state": lambda _: STABLE,
            "assigned_partitions": lambda record: stored_assignment(record.partitions),
        },
        {"partitions": lambda value: loaded_assignment(value.assigned_partitions)},
    ),
    ShareGroupRecordType.STATE_PARTITION_METADATA: StoredForm(
        core.ShareGroupStatePartitionMetadata,
        {
            "initializing_topics": lambda _: (),
            "initialized_topics": lambda record: tuple(map(_stored_topic, record.initialized)),
            "deleting_topics": lambda _: (),
        },
        {"initialized": lambda value: tuple(map(_loaded_topic, value.initialized_topics))},
    ),
}

_CODEC = RecordCodec[ShareGroupRecord](wire.SHARE_GROUP_RECORDS, _FORMS, ShareGroupTombstone)
encode, decode = _CODEC.encode, _CODEC.decode
