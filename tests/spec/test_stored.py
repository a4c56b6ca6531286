"""What the two internal topics hold, as Kafka's own tools read it (docs/spec.md, «stored»)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spec.administration import delete_groups
from tests.spec.internal_topics import (
    CONSUMER_OFFSETS,
    PARTITIONS,
    SHARE_GROUP_STATE,
    SNAPSHOT,
    UPDATE,
    CoordinatorRecord,
    group_records,
    state_partition,
    state_records,
)
from tests.spec.member import Member
from tests.spec.messages import ACCEPT, REJECT, RELEASE, RENEW, Topic
from tests.spec.peer import UPDATES_PER_SNAPSHOT, start_ours
from tests.spec.scene import EARLIEST, TOPIC_RESOURCE, Scene
from tests.spec.waiting import wait_for

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
MEMBER, GROUP, TARGET_EPOCH, TARGET, CURRENT, STATE_PARTITIONS = 10, 11, 12, 13, 14, 15


def reader(scene: Scene, *batches: int, **configs: str) -> tuple[Topic, Member]:
    topic = scene.topic()
    scene.produce(topic, *batches)
    return topic, scene.member(scene.group(**configs), topic)


def batches(record: CoordinatorRecord) -> list[tuple[int, int, int, int]]:
    assert record.value is not None
    return [
        (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in record.value.state_batches
    ]


def written(scene: Scene, member: Member, topic: Topic) -> list[CoordinatorRecord]:
    """What was written since the state was initialised."""
    first, *others = state_records(scene, member.group, topic)
    assert first.type == SNAPSHOT
    return others


def test_stored_1_state_begins_with_a_snapshot(scene: Scene) -> None:
    topic, member = reader(scene, 1)
    [first] = state_records(scene, member.group, topic)
    assert (first.type, batches(first)) == (SNAPSHOT, [])
    assert first.value is not None
    assert (first.value.snapshot_epoch, first.value.state_epoch) == (0, 2)
    assert first.value.leader_epoch == 0
    decided = {"ours": (0, 0), "kafka": (-1, -1)}[scene.kind]
    assert (first.value.start_offset, first.value.delivery_complete_count) == decided
    assert first.value.create_timestamp == first.value.write_timestamp > 1_600_000_000_000


def test_stored_2_acknowledgements_of_a_request_are_one_update(scene: Scene) -> None:
    topic, member = reader(scene, 9)
    member.take(9)
    acks = [(2, 3, ACCEPT), (4, 4, REJECT), (6, 7, RELEASE)]
    assert member.acknowledge(acks).outcome == 0
    *_, last = written(scene, member, topic)
    assert (last.type, last.value is not None) == (UPDATE, True)
    expected = [(2, 3, ACKNOWLEDGED, 1), (4, 4, ARCHIVED, 1), (6, 7, AVAILABLE, 1)]
    assert batches(last) == expected
    assert last.value is not None
    assert (last.value.snapshot_epoch, last.value.start_offset) == (0, 0)
    assert last.value.delivery_complete_count == 3


def test_stored_3_locks_and_renewals_are_not_written(scene: Scene) -> None:
    topic, member = reader(scene, 2)
    member.take(2)
    assert member.acknowledge([(0, 1, RENEW)], renew=True).outcome == 0
    assert [batches(entry) for entry in written(scene, member, topic) if batches(entry)] == []


def test_stored_4_snapshot_follows_so_many_updates(scene: Scene) -> None:
    topic, member = reader(scene, 20)
    member.take(20)
    for offset in range(0, 14, 2):
        assert member.acknowledge([(offset, offset, ACCEPT)]).outcome == 0
    types = [entry.type for entry in written(scene, member, topic)]
    first = types.index(SNAPSHOT)
    assert first <= UPDATES_PER_SNAPSHOT
    snapshot = written(scene, member, topic)[first]
    assert snapshot.value is not None
    assert snapshot.value.snapshot_epoch == 1
    told = [first for first, *_ in batches(snapshot)]
    assert told == [offset for offset in range(0, 14, 2) if offset in told]
    assert len(told) >= UPDATES_PER_SNAPSHOT - 1


def test_stored_5_released_records_keep_their_count(scene: Scene) -> None:
    topic, member = reader(scene, 1)
    for _ in range(2):
        member.take()
        assert member.acknowledge([(0, 0, RELEASE)]).outcome == 0
    assert batches(written(scene, member, topic)[-1]) == [(0, 0, AVAILABLE, 2)]


def test_stored_6_deleted_group_leaves_tombstones(scene: Scene) -> None:
    topic, member = reader(scene, 1)
    member.leave()
    scene.drop(member)
    assert delete_groups(scene, member.group) == [0]
    *_, last = state_records(scene, member.group, topic)
    assert (last.type, last.value) == (SNAPSHOT, None)
    *_, group = group_records(scene, member.group)
    assert (group.type, group.value) == (GROUP, None)


def test_stored_7_state_partition_is_given_by_the_hash(scene: Scene) -> None:
    topic = scene.topic(4)
    group = f"{scene.name}:with:colons"
    scene.alter_group(group, share_auto_offset_reset="earliest")
    scene.member(group, topic).until_assigned(4)
    for partition in range(4):
        assert state_records(scene, group, topic, partition)[0].type == SNAPSHOT


def test_stored_8_topic_of_states(scene: Scene) -> None:
    about = scene.metadata(SHARE_GROUP_STATE)
    assert (about.is_internal, len(about.partitions)) == (True, PARTITIONS)
    configs = scene.configs(TOPIC_RESOURCE, SHARE_GROUP_STATE)
    assert (configs["cleanup.policy"], configs["retention.ms"]) == ("delete", "-1")
    assert configs["segment.bytes"] == "104857600"


def test_stored_9_topic_of_groups(scene: Scene) -> None:
    about = scene.metadata(CONSUMER_OFFSETS)
    assert (about.is_internal, len(about.partitions)) == (True, PARTITIONS)
    configs = scene.configs(TOPIC_RESOURCE, CONSUMER_OFFSETS)
    assert configs["cleanup.policy"] == "compact"


def by_type(scene: Scene, group: str) -> dict[int, Any]:
    """The last record of each type."""
    return {record.type: record for record in group_records(scene, group)}


def test_stored_10_member_and_group(scene: Scene) -> None:
    topic, member = reader(scene)
    last = by_type(scene, member.group)
    assert last[MEMBER].key.member_id == member.member_id
    told = last[MEMBER].value
    assert (told.rack_id, told.client_id) == (None, "spec")
    assert told.subscribed_topic_names == (topic.name,)
    assert last[GROUP].value.epoch == last[TARGET_EPOCH].value.assignment_epoch == member.epoch


def test_stored_11_assignments(scene: Scene) -> None:
    topic, member = reader(scene)
    last = by_type(scene, member.group)
    for kind in (TARGET, CURRENT):
        assert last[kind].key.member_id == member.member_id
    [target] = last[TARGET].value.topic_partitions
    [current] = last[CURRENT].value.assigned_partitions
    for entry in (target, current):
        assert (entry.topic_id, entry.partitions) == (topic.id, (0,))
    assert (last[CURRENT].value.member_epoch, last[CURRENT].value.state) == (member.epoch, 0)


def test_stored_12_record_of_topics_with_initialized_state(scene: Scene) -> None:
    topic, member = reader(scene)
    value = by_type(scene, member.group)[STATE_PARTITIONS].value
    assert (value.initializing_topics, value.deleting_topics) == ((), ())
    [initialized] = value.initialized_topics
    assert (initialized.topic_id, initialized.topic_name, initialized.partitions) == (
        topic.id,
        topic.name,
        (0,),
    )


def test_stored_13_order_of_a_joins_records(scene: Scene) -> None:
    """Kafka assigns what it has, initialises, and assigns again; ours does all at once."""
    _, member = reader(scene)
    order = [record.type for record in group_records(scene, member.group)]
    assigning = [GROUP, TARGET, TARGET_EPOCH, CURRENT]
    assert (
        order
        == {
            "ours": [STATE_PARTITIONS, MEMBER, *assigning],
            "kafka": [MEMBER, *assigning, STATE_PARTITIONS, STATE_PARTITIONS, *assigning],
        }[scene.kind]
    )


def test_stored_14_member_that_left_leaves_tombstones(scene: Scene) -> None:
    _, member = reader(scene)
    member.leave()
    last = by_type(scene, member.group)
    for kind in (CURRENT, TARGET, MEMBER):
        assert last[kind].key.member_id == member.member_id
        assert last[kind].value is None, kind
    types = [record.type for record in group_records(scene, member.group) if record.value is None]
    assert types[-3:] == [CURRENT, TARGET, MEMBER]


def test_stored_15_group_that_emptied_was_assigned_in_its_newest_epoch(scene: Scene) -> None:
    _, member = reader(scene)
    member.leave()
    last = by_type(scene, member.group)
    assert last[GROUP].value.epoch == last[TARGET_EPOCH].value.assignment_epoch
    assert last[TARGET_EPOCH].value.assignment_timestamp == 0


def test_stored_16_state_of_a_deleted_topic_is_deleted(scene: Scene) -> None:
    topic, member = reader(scene, 1)
    scene.delete_topic(topic)
    wait_for(lambda: state_records(scene, member.group, topic)[-1].value is None, "its tombstone")


@pytest.mark.ours_only("its interval is five minutes, and a second node would cost a gigabyte")
def test_stored_17_records_replaced_by_snapshots_are_pruned(scene: Scene, tmp_path: Path) -> None:
    """Uses a separate broker, because the other tests read the log from its beginning."""
    interval = {"share.coordinator.state.topic.prune.interval.ms": "200"}
    with start_ours(tmp_path, interval) as peer, Scene(peer, scene.name) as pruned:
        topic, member = reader(pruned, 40)
        member.take(40)
        for offset in range(0, 30, 2):
            assert member.acknowledge([(offset, offset, ACCEPT)]).outcome == 0
        number = state_partition(member.group, topic, 0)
        log = pruned.known_topic(SHARE_GROUP_STATE, PARTITIONS)
        wait_for(lambda: pruned.offset(log, EARLIEST, partition=number) > 0, "the pruning")
        first = state_records(pruned, member.group, topic)[0]
        assert first.type == SNAPSHOT
        assert pruned.start_and_lag(member.group, topic) == (1, 25)
        member.close()
        left = [number for first, last, _ in member.take(25) for number in range(first, last + 1)]
        assert left == [number for number in range(40) if number >= 30 or number % 2]


@pytest.mark.ours_only("its interval is five minutes, and a second node would cost a gigabyte")
def test_stored_18_quiet_share_partition_is_snapshotted_in_time(
    scene: Scene, tmp_path: Path
) -> None:
    """So that what lies before can be pruned; the snapshot has what the updates said."""
    interval = {"share.coordinator.cold.partition.snapshot.interval.ms": "300"}
    with start_ours(tmp_path, interval) as peer, Scene(peer, scene.name) as quiet:
        topic, member = reader(quiet, 10)
        member.take(10)
        for offset in (2, 4, 6):
            assert member.acknowledge([(offset, offset, ACCEPT)]).outcome == 0
        expected = [(offset, offset, ACKNOWLEDGED, 1) for offset in (2, 4, 6)]

        def snapshotted() -> bool:
            records = written(quiet, member, topic)
            return any(
                record.type == SNAPSHOT and batches(record) == expected for record in records
            )

        wait_for(snapshotted, "a snapshot")


@pytest.mark.ours_only("its interval is five minutes, and a second node would cost a gigabyte")
def test_stored_20_unchanged_state_is_not_written_again(scene: Scene, tmp_path: Path) -> None:
    """Meanwhile two other share partitions are snapshotted in time."""
    interval = {"share.coordinator.cold.partition.snapshot.interval.ms": "200"}
    with start_ours(tmp_path, interval) as peer, Scene(peer, scene.name) as quiet:
        topic, member = until_cold(quiet)
        number = state_partition(member.group, topic, 0)
        log = quiet.known_topic(SHARE_GROUP_STATE, PARTITIONS)
        end, others = quiet.offset(log, partition=number), 0
        while others < 2:
            topic, member = until_cold(quiet)
            if state_partition(member.group, topic, 0) == number:  # One of fifty: begin again.
                end, others = quiet.offset(log, partition=number), 0
            else:
                others += 1
        assert quiet.offset(log, partition=number) == end


def until_cold(scene: Scene) -> tuple[Topic, Member]:
    """A share partition with three updates, when a snapshot has followed them."""
    topic, member = reader(scene, 10)
    member.take(10)
    for offset in (2, 4, 6):
        assert member.acknowledge([(offset, offset, ACCEPT)]).outcome == 0
    wait_for(lambda: written(scene, member, topic)[-1].type == SNAPSHOT, "a snapshot")
    return topic, member


def test_stored_19_unchanged_assignment_is_not_written_again(scene: Scene) -> None:
    """A member of another topic joins and gets partitions."""
    topic, member = reader(scene)
    other_topic, other = scene.topic(), scene.member(member.group)

    def targets() -> int:
        found = group_records(scene, member.group)
        mine = [entry for entry in found if entry.type == TARGET]
        return sum(entry.key.member_id == member.member_id for entry in mine)

    before = targets()
    other.join(other_topic)
    assert other.assigned == {(other_topic.id, 0)}
    assert member.heartbeat().error_code == 0
    assert targets() == before
    assert member.assigned == {(topic.id, 0)}
