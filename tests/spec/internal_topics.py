"""The two internal topics as any consumer reads them: coordinator records, in order."""

from __future__ import annotations

from typing import Any, NamedTuple

from sharegroup.ids import TopicId, topic_id_text
from sharegroup.wire.batches.records import decode_records
from sharegroup.wire.internal_topics.coordinator_records import RecordClasses, decode_record
from sharegroup.wire.internal_topics.share_group_records import SHARE_GROUP_RECORDS
from sharegroup.wire.internal_topics.share_state_records import SHARE_STATE_RECORDS
from tests.spec.messages import Topic
from tests.spec.scene import EARLIEST, Scene

SHARE_GROUP_STATE, CONSUMER_OFFSETS = "__share_group_state", "__consumer_offsets"
PARTITIONS = 50
SNAPSHOT, UPDATE = 0, 1


class CoordinatorRecord(NamedTuple):
    type: int
    key: Any
    value: Any | None


def java_hash(text: str) -> int:
    """``String.hashCode``, a signed number of 32 bits."""
    value = 0
    units = text.encode("utf-16-be")
    for index in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[index : index + 2], "big")) % 2**32
    return value - 2**32 if value >= 2**31 else value


def state_partition(group: str, topic: Topic, partition: int) -> int:
    """Where the state of a share partition lies."""
    text = f"{group}:{topic_id_text(TopicId(topic.id))}:{partition}"
    return abs(java_hash(text)) % PARTITIONS


def state_records(
    scene: Scene, group: str, topic: Topic, partition: int = 0
) -> list[CoordinatorRecord]:
    """All records of one share partition."""
    found = _records(
        scene, SHARE_GROUP_STATE, state_partition(group, topic, partition), SHARE_STATE_RECORDS
    )
    wanted = (group, topic.id, partition)
    return [
        entry
        for entry in found
        if (entry.key.group_id, entry.key.topic_id, entry.key.partition) == wanted
    ]


def group_records(scene: Scene, group: str) -> list[CoordinatorRecord]:
    """All records of one share group."""
    number = abs(java_hash(group)) % PARTITIONS
    found = _records(scene, CONSUMER_OFFSETS, number, SHARE_GROUP_RECORDS)
    return [entry for entry in found if entry.key.group_id == group]


def _records(
    scene: Scene, topic: str, partition: int, classes: RecordClasses
) -> list[CoordinatorRecord]:
    log = scene.known_topic(topic, PARTITIONS)
    position = scene.offset(log, EARLIEST, partition=partition)
    end = scene.offset(log, partition=partition)
    found = []
    while position < end:
        records = decode_records(scene.fetch_bytes(log, position, partition=partition))
        for record in records:
            assert record.key is not None
            decoded = decode_record(classes, record.key, record.value)
            if decoded is not None:
                record_type = int.from_bytes(record.key[:2], "big")
                found.append(CoordinatorRecord(record_type, *decoded))
        position = records[-1].offset + 1
    return found
