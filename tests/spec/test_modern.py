"""Consumer groups of KIP-848 (docs/spec.md, «modern»)."""

from __future__ import annotations

from typing import Any, Self
from uuid import UUID, uuid4

import pytest
from kio.schema.consumer_group_describe.v1 import request as consumer_group_describe
from kio.schema.consumer_group_heartbeat.v1 import request as consumer_group_heartbeat
from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription
from kio.schema.offset_commit.v8 import request as offset_commit_v8
from kio.schema.offset_commit.v9 import request as offset_commit
from kio.schema.offset_delete.v0 import request as offset_delete
from kio.schema.offset_fetch.v9 import request as offset_fetch

from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import encode
from tests.spec.administration import delete_groups, list_groups
from tests.spec.messages import IMPOSSIBLE_NAMES, Partition, Topic, milliseconds
from tests.spec.scene import GROUP_RESOURCE, Scene
from tests.spec.test_consumer import Consumer, commit, committed, described
from tests.spec.waiting import wait_for

INVALID_REQUEST, NO_GROUP, UNKNOWN_MEMBER, FENCED_EPOCH = 42, 69, 25, 110
UNSUPPORTED_ASSIGNOR, UNRELEASED_INSTANCE, FENCED_INSTANCE = 112, 111, 82
STALE_EPOCH, INVALID_PATTERN, NON_EMPTY, UNSUPPORTED_VERSION = 113, 128, 68, 35
SUBSCRIBED, REBALANCING, GROUP_FULL, NOT_LOADED = 86, 27, 81, {14, 15, 16}
REBALANCE_MS = 60_000
UNCHANGED = milliseconds(-1)


class ConsumerMember:
    """A member by hand; a confirmed heartbeat moves its epoch and its assignment."""

    def __init__(self, scene: Scene, group: str, **fields: Any) -> None:
        self.scene = scene
        self.connection = scene.connect()
        self.group = group
        self.member_id = str(uuid4())
        self.epoch = 0
        self.assigned: set[Partition] = set()
        self.fields = fields
        """Fields of its first request: instance_id, rebalance_ms, assignor, pattern."""

    def heartbeat(
        self,
        *,
        epoch: int | None = None,
        names: tuple[str, ...] | None = None,
        owned: set[Partition] | None = None,
        is_full: bool = False,
        **changes: Any,
    ) -> Any:
        joins = is_full or (self.epoch if epoch is None else epoch) == 0
        fields = {**(self.fields if joins else {}), **changes}
        if joins and owned is None:
            owned = set() if not is_full else self.assigned
        if joins and names is None and "pattern" not in fields:
            names = ()
        by_topic: dict[UUID, list[int]] = {}
        for topic_id, number in owned or ():
            by_topic.setdefault(topic_id, []).append(number)
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=fields.get("group", self.group),
            member_id=fields.get("member_id", self.member_id),
            member_epoch=self.epoch if epoch is None else epoch,
            instance_id=fields.get("instance_id"),
            rack_id=fields.get("rack_id"),
            rebalance_timeout=milliseconds(
                fields.get("rebalance_ms", REBALANCE_MS if joins else -1)
            ),
            subscribed_topic_names=names,
            subscribed_topic_regex=fields.get("pattern"),
            server_assignor=fields.get("assignor"),
            topic_partitions=(
                None
                if owned is None
                else tuple(
                    consumer_group_heartbeat.TopicPartitions(
                        topic_id=topic_id, partitions=tuple(sorted(numbers))
                    )
                    for topic_id, numbers in by_topic.items()
                )
            ),
        )
        answer = self.connection.ask(request)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {
                    (topic.topic_id, number)
                    for topic in answer.assignment.topic_partitions
                    for number in topic.partitions
                }
        return answer

    def join(self, *topics: Topic, **fields: Any) -> Self:
        names = tuple(topic.name for topic in topics)
        if self.scene.kind == "kafka" and names:
            wait_for(lambda: self.knows(topics), "the coordinator to know the topics")

        def attempt() -> Any:
            answer = self.heartbeat(epoch=0, names=names, **fields)
            return None if answer.error_code in NOT_LOADED else answer

        answer = wait_for(attempt, "the coordinator")
        assert answer.error_code == 0, answer
        return self

    def knows(self, topics: tuple[Topic, ...]) -> bool:
        """Whether a group would get the topics: Kafka's coordinator learns of them late."""
        probe = ConsumerMember(self.scene, f"probe-{uuid4()}")
        answer = probe.heartbeat(epoch=0, names=tuple(topic.name for topic in topics))
        if answer.error_code == 0:
            probe.heartbeat(epoch=-1)
        return len(probe.assigned) == sum(topic.partition_count for topic in topics)

    def settle(self, *others: ConsumerMember) -> None:
        """Send heartbeats that confirm every revocation until nothing moves any more."""
        members = (self, *others)

        def is_settled() -> bool:
            for member in members:
                member.heartbeat(owned=set(member.assigned))
            return len({member.epoch for member in members}) == 1

        wait_for(is_settled, "one epoch of all members")
        for member in members * 2:
            member.heartbeat(owned=set(member.assigned))

    def numbers(self) -> list[int]:
        return sorted(number for _, number in self.assigned)

    def leave(self, epoch: int = -1) -> Any:
        return self.heartbeat(epoch=epoch, **self.fields)


def about(scene: Scene, group: str) -> Any:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=(group,), include_authorized_operations=False
    )
    return scene.ask(request).groups[0]


def started(scene: Scene, *topics: Topic, **fields: Any) -> ConsumerMember:
    return ConsumerMember(scene, scene.new_name("group"), **fields).join(*topics)


def commit_as(scene: Scene, member: ConsumerMember, topic: Topic, offset: int, **ids: Any) -> int:
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=ids.get("partition", 0), committed_offset=offset, committed_metadata=""
    )
    request = offset_commit.OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=ids.get("epoch", member.epoch),
        member_id=ids.get("member_id", member.member_id),
        topics=(offset_commit.OffsetCommitRequestTopic(name=topic.name, partitions=(partition,)),),
    )
    return int(scene.ask(request).topics[0].partitions[0].error_code)


def classic(scene: Scene, group: str, topic: Topic, **fields: Any) -> Consumer:
    """A member of the classic protocol with a real subscription, and its partitions."""
    subscription = b"\0\0" + encode(
        ConsumerProtocolSubscription(topics=(topic.name,), user_data=None)
    )

    class WithSubscription(Consumer):
        def join_request(self, protocol: str = "range", kind: str = "consumer") -> Any:
            request = super().join_request(protocol, kind)
            protocols = tuple(
                type(protocol)(name=protocol.name, metadata=subscription)
                for protocol in request.protocols
            )
            return type(request)(
                **{
                    **{name: getattr(request, name) for name in request.__slots__},
                    "protocols": protocols,
                }
            )

    return WithSubscription(scene, group, **fields)


def start_classic(scene: Scene, topic: Topic) -> Consumer:
    """A classic group of one member that has all partitions of the topic."""
    consumer = classic(scene, scene.new_name("group"), topic)
    assert consumer.join().error_code == 0
    assignment = _assignment(topic)
    assert consumer.sync(**{consumer.member_id: assignment}).error_code == 0
    return consumer


def _assignment(topic: Topic) -> bytes:
    from kio.schema.consumer_protocol_assignment.v0 import data

    return b"\0\0" + encode(
        data.ConsumerProtocolAssignment(
            assigned_partitions=(
                data.TopicPartition(
                    topic=topic.name, partitions=tuple(range(topic.partition_count))
                ),
            ),
            user_data=None,
        )
    )


def synced(consumer: Consumer) -> list[int]:
    """The partitions that SyncGroup returns."""
    answer = consumer.sync()
    assert answer.error_code == 0, answer
    version = int.from_bytes(answer.assignment[:2], "big")
    from kio.schema.consumer_protocol_assignment.v0 import data

    assert version == 0
    assignment, _ = decode(data.ConsumerProtocolAssignment, answer.assignment, 2)
    assert isinstance(assignment, data.ConsumerProtocolAssignment)
    return sorted(number for topic in assignment.assigned_partitions for number in topic.partitions)


def test_modern_1_first_member_of_a_group_has_its_partitions_at_once(scene: Scene) -> None:
    member = started(scene, scene.topic(3))
    assert (member.epoch, member.numbers()) == (2, [0, 1, 2])


def test_modern_2_invalid_requests_are_refused(scene: Scene) -> None:
    member = ConsumerMember(scene, scene.new_name("group"))
    for fields in (
        {"rebalance_ms": -1},
        {"owned": {(uuid4(), 0)}},
        {"epoch": -3},
        {"epoch": -2},
        {"member_id": ""},
        {"group": ""},
        {"instance_id": ""},
        {"rack_id": ""},
    ):
        answer = member.heartbeat(**{"epoch": 0, "names": ("a",), **fields})
        assert answer.error_code == INVALID_REQUEST, fields


def test_modern_3_unknown_groups_and_members_have_to_join(scene: Scene) -> None:
    stranger = ConsumerMember(scene, scene.new_name("group"))
    assert stranger.heartbeat(epoch=1).error_code == NO_GROUP
    assert stranger.heartbeat(epoch=-1).error_code == NO_GROUP
    stranger.group = started(scene, scene.topic()).group
    assert stranger.heartbeat(epoch=1).error_code == UNKNOWN_MEMBER
    assert stranger.heartbeat(epoch=-1).error_code == UNKNOWN_MEMBER


def test_modern_4_unknown_assignor_is_refused(scene: Scene) -> None:
    member = ConsumerMember(scene, scene.new_name("group"), assignor="sticky")
    assert member.heartbeat(epoch=0, names=("a",)).error_code == UNSUPPORTED_ASSIGNOR


def test_modern_5_partitions_are_revoked_before_they_move(scene: Scene) -> None:
    topic = scene.topic(4)
    first = started(scene, topic)
    second = ConsumerMember(scene, first.group).join(topic)
    assert (second.epoch, second.numbers()) == (3, [])
    before = set(first.assigned)
    assert first.heartbeat().member_epoch == 2
    assert len(first.assigned) == 2
    assert second.heartbeat().assignment is None
    assert first.heartbeat(owned=set(first.assigned)).member_epoch == 3
    second.heartbeat()
    assert second.assigned == before - first.assigned


def test_modern_6_newer_epoch_is_fenced(scene: Scene) -> None:
    topic = scene.topic(2)
    member = started(scene, topic)
    assert member.heartbeat(epoch=7).error_code == FENCED_EPOCH
    assert member.join(topic).numbers() == [0, 1]


def test_modern_7_previous_epoch_is_valid_for_a_lost_response(scene: Scene) -> None:
    topic = scene.topic(1)
    member = started(scene, topic)
    scene.grow(topic, 2)
    owned = set(member.assigned)

    def has_moved() -> bool:
        return bool(member.heartbeat().member_epoch == 3)

    wait_for(has_moved, "the new partition")
    assert member.heartbeat(epoch=2, owned=owned).member_epoch == 3
    assert member.heartbeat(epoch=2).error_code == FENCED_EPOCH
    assert member.heartbeat(epoch=2, owned={(topic.id, 5)}).error_code == FENCED_EPOCH


def test_modern_8_assignment_is_not_repeated(scene: Scene) -> None:
    topic = scene.topic(1)
    member = started(scene, topic)
    assert member.heartbeat().assignment is None
    assert member.heartbeat(names=(topic.name,), is_full=True).assignment is not None


def test_modern_9_static_member_returns_to_its_partitions(scene: Scene) -> None:
    topic = scene.topic(2)
    member = started(scene, topic, instance_id="i")
    assert member.leave(-2).member_epoch == -2
    successor = ConsumerMember(scene, member.group, instance_id="i").join(topic)
    assert (successor.epoch, successor.numbers()) == (2, [0, 1])
    assert member.heartbeat(epoch=2, instance_id="i").error_code == FENCED_INSTANCE


def test_modern_10_instance_id_of_a_present_member_is_taken(scene: Scene) -> None:
    topic = scene.topic(2)
    member = started(scene, topic, instance_id="i")
    rival = ConsumerMember(scene, member.group, instance_id="i")
    assert rival.heartbeat(epoch=0, names=(topic.name,)).error_code == UNRELEASED_INSTANCE


def test_modern_11_member_that_revokes_too_late_is_removed(scene: Scene) -> None:
    topic = scene.topic(2)
    first = started(scene, topic, rebalance_ms=300)
    second = ConsumerMember(scene, first.group).join(topic)
    first.heartbeat()

    def has_all() -> bool:
        second.heartbeat()
        return second.numbers() == [0, 1]

    wait_for(has_all, "the partitions of the removed member")
    assert first.heartbeat().error_code == UNKNOWN_MEMBER


def test_modern_12_uniform_moves_no_more_than_it_must(scene: Scene) -> None:
    topic = scene.topic(5)
    first = started(scene, topic)
    second = ConsumerMember(scene, first.group).join(topic)
    first.settle(second)
    before = {member: set(member.assigned) for member in (first, second)}
    assert sorted(len(assigned) for assigned in before.values()) == [2, 3]
    third = ConsumerMember(scene, first.group).join(topic)
    first.settle(second, third)
    assert sorted(len(member.assigned) for member in (first, second, third)) == [1, 2, 2]
    assert first.assigned <= before[first]
    assert second.assigned <= before[second]


def test_modern_13_range_divides_each_topic(scene: Scene) -> None:
    topics = scene.topic(3), scene.topic(3)
    members = [
        ConsumerMember(scene, "", assignor="range", instance_id=f"i{number}") for number in (1, 2)
    ]
    group = scene.new_name("group")
    for member in members:
        member.group = group
        member.join(*topics)
    members[0].settle(members[1])
    assert members[0].assigned == {(topic.id, number) for topic in topics for number in (0, 1)}
    assert members[1].assigned == {(topic.id, 2) for topic in topics}
    assert about(scene, group).assignor_name == "range"


def test_modern_14_changes_of_topics_are_followed(scene: Scene) -> None:
    topic, name = scene.topic(1), scene.new_name("topic")
    member = ConsumerMember(scene, scene.new_name("group"))
    member.heartbeat(epoch=0, names=(topic.name, name))
    scene.grow(topic, 2)
    other = scene.topic(1, name=name)
    expected = {(topic.id, 0), (topic.id, 1), (other.id, 0)}

    def follows() -> bool:
        member.heartbeat(owned=set(member.assigned))
        return member.assigned == expected

    wait_for(follows, "the new partitions")
    scene.delete_topic(other)
    expected.remove((other.id, 0))
    wait_for(follows, "the deletion")


def test_modern_15_pattern_matches_topics(scene: Scene) -> None:
    stem = scene.new_name("topic").replace(".", "-")
    first = scene.topic(1, name=f"{stem}-eu")
    scene.topic(1, name=f"x{stem}-eu")
    member = ConsumerMember(scene, scene.new_name("group"), pattern=f"{stem}-(eu|us)")
    expected = {(first.id, 0)}

    def follows() -> bool:
        member.heartbeat(owned=set(member.assigned))
        return member.assigned == expected

    wait_for(follows, "the topic")
    if scene.kind == "ours":  # Kafka looks again after ten seconds.
        expected.add((scene.topic(1, name=f"{stem}-us").id, 0))
        wait_for(follows, "the new topic")


def test_modern_16_invalid_pattern_is_refused(scene: Scene) -> None:
    member = ConsumerMember(scene, scene.new_name("group"), pattern="(a")
    assert member.heartbeat(epoch=0).error_code == INVALID_PATTERN


def test_modern_17_commit_needs_the_member_epoch(scene: Scene) -> None:
    topic = scene.topic()
    member = started(scene, topic)
    assert commit_as(scene, member, topic, 5) == 0
    assert committed(scene, member.group, topic) == (0, 5, "")
    assert commit_as(scene, member, topic, 6, epoch=9) == STALE_EPOCH
    assert commit_as(scene, member, topic, 6, member_id="nobody") == UNKNOWN_MEMBER
    assert commit(scene, member.group, topic, 6) == UNKNOWN_MEMBER


def test_modern_18_older_epoch_may_commit_what_it_has_had_since(scene: Scene) -> None:
    topic = scene.topic(2)
    first = started(scene, topic)
    second = ConsumerMember(scene, first.group).join(topic)
    first.settle(second)
    assert (first.epoch, second.epoch) == (3, 3)
    [kept], [lost] = first.numbers(), second.numbers()
    assert commit_as(scene, first, topic, 1, epoch=2, partition=kept) == 0
    assert commit_as(scene, first, topic, 1, epoch=2, partition=lost) == STALE_EPOCH
    assert commit_as(scene, second, topic, 1, epoch=2, partition=lost) == STALE_EPOCH


def test_modern_19_old_version_cannot_commit(scene: Scene) -> None:
    topic = scene.topic()
    member = started(scene, topic)
    partition = offset_commit_v8.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    request = offset_commit_v8.OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.epoch,
        member_id=member.member_id,
        topics=(
            offset_commit_v8.OffsetCommitRequestTopic(name=topic.name, partitions=(partition,)),
        ),
    )
    [answer] = scene.ask(request).topics[0].partitions
    assert answer.error_code == UNSUPPORTED_VERSION


def test_modern_20_fetch_of_offsets_checks_the_member_epoch(scene: Scene) -> None:
    topic = scene.topic()
    member = started(scene, topic)

    def fetched(member_id: str | None, epoch: int) -> int:
        wanted = offset_fetch.OffsetFetchRequestTopics(name=topic.name, partition_indexes=(0,))
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=member.group, member_id=member_id, member_epoch=epoch, topics=(wanted,)
        )
        request = offset_fetch.OffsetFetchRequest(groups=(group,), require_stable=False)
        return int(scene.ask(request).groups[0].error_code)

    assert fetched(member.member_id, member.epoch) == 0
    assert fetched(member.member_id, 1) == STALE_EPOCH
    assert fetched("nobody", 1) == UNKNOWN_MEMBER
    assert fetched(None, -1) == 0


def test_modern_21_group_is_described(scene: Scene) -> None:
    topic = scene.topic(2)
    first = started(scene, topic, rack_id="r1")
    second = ConsumerMember(scene, first.group).join(topic)
    group = about(scene, first.group)
    assert (group.error_code, group.group_state) == (0, "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (3, 3, "uniform")
    members = {member.member_id: member for member in group.members}
    described_first = members[first.member_id]
    assert (described_first.member_epoch, described_first.rack_id) == (2, "r1")
    assert (described_first.client_id, described_first.member_type) == ("spec", 1)
    assert described_first.subscribed_topic_names == (topic.name,)
    [assigned] = described_first.assignment.topic_partitions
    assert (assigned.topic_name, sorted(assigned.partitions)) == (topic.name, [0, 1])
    [target] = described_first.target_assignment.topic_partitions
    assert len(target.partitions) == 1
    assert members[second.member_id].assignment.topic_partitions == ()
    first.settle(second)
    assert about(scene, first.group).group_state == "Stable"


def test_modern_22_group_is_listed_and_found_under_its_type(scene: Scene) -> None:
    member = started(scene, scene.topic())
    [group] = list_groups(scene)
    assert (group.group_type, group.protocol_type, group.group_state) == (
        "consumer",
        "consumer",
        "Stable",
    )
    assert list_groups(scene, types=("classic",)) == []
    found = described(scene, member.group)
    assert (found.error_code, found.group_state) == (NO_GROUP, "Dead")
    other = Consumer(scene, scene.new_name("group")).start()
    assert about(scene, other.group).error_code == NO_GROUP


def test_modern_23_group_without_members_is_deleted(scene: Scene) -> None:
    topic = scene.topic()
    member = started(scene, topic)
    assert commit_as(scene, member, topic, 5) == 0
    assert delete_groups(scene, member.group) == [NON_EMPTY]
    assert member.leave().member_epoch == -1
    assert about(scene, member.group).group_state == "Empty"
    assert delete_groups(scene, member.group) == [0]
    assert committed(scene, member.group, topic) == (0, -1, "")
    assert list_groups(scene) == []


def test_modern_24_offsets_of_a_subscribed_topic_stay(scene: Scene) -> None:
    topic, other = scene.topic(), scene.topic()
    member = started(scene, topic)
    assert commit_as(scene, member, topic, 5) == 0
    assert commit_as(scene, member, other, 5) == 0
    request = offset_delete.OffsetDeleteRequest(
        group_id=member.group,
        topics=tuple(
            offset_delete.OffsetDeleteRequestTopic(
                name=named.name,
                partitions=(offset_delete.OffsetDeleteRequestPartition(partition_index=0),),
            )
            for named in (topic, other)
        ),
    )
    codes = {
        answered.name: answered.partitions[0].error_code for answered in scene.ask(request).topics
    }
    assert codes == {topic.name: SUBSCRIBED, other.name: 0}


def test_modern_25_other_types_of_groups_are_not_found(scene: Scene) -> None:
    topic = scene.topic()
    member = started(scene, topic)
    assert scene.member(member.group).heartbeat(topics=[topic.name]).error_code == NO_GROUP
    share = scene.member(scene.group(), topic)
    joining = ConsumerMember(scene, share.group)
    assert joining.heartbeat(epoch=0, names=(topic.name,)).error_code == NO_GROUP


def test_modern_26_classic_group_is_upgraded(scene: Scene) -> None:
    topic = scene.topic(2)
    old = start_classic(scene, topic)
    member = ConsumerMember(scene, old.group).join(topic)
    [group] = list_groups(scene)
    assert group.group_type == "consumer"
    assert member.numbers() == [], "the classic member still has all"
    assert old.heartbeat() == REBALANCING
    assert old.join().error_code == 0
    assert len(synced(old)) == 1

    def has_its_part() -> bool:
        member.heartbeat(owned=set(member.assigned))
        if old.heartbeat() == REBALANCING:
            old.join()
            synced(old)
        return len(member.numbers()) == 1

    wait_for(has_its_part, "the partition that the classic member gave up")
    assert sorted(synced(old) + member.numbers()) == [0, 1]
    types = {member.member_id: member.member_type for member in about(scene, old.group).members}
    assert types == {old.member_id: 0, member.member_id: 1}


def test_modern_27_group_is_downgraded(scene: Scene) -> None:
    topic = scene.topic(2)
    old = start_classic(scene, topic)
    member = ConsumerMember(scene, old.group).join(topic)
    assert old.heartbeat() == REBALANCING
    assert member.leave().member_epoch == -1
    [group] = list_groups(scene)
    assert (group.group_type, group.group_state) == ("classic", "PreparingRebalance")
    assert old.join().error_code == 0
    assert old.sync(**{old.member_id: _assignment(topic)}).error_code == 0
    assert described(scene, old.group).group_state == "Stable"


def test_modern_28_empty_group_changes_its_protocol(scene: Scene) -> None:
    topic = scene.topic()
    old = start_classic(scene, topic)
    assert commit(scene, old.group, topic, 7, member=old) == 0
    assert old.leave() == 0
    member = ConsumerMember(scene, old.group).join(topic)
    assert [group.group_type for group in list_groups(scene)] == ["consumer"]
    assert committed(scene, old.group, topic) == (0, 7, "note")
    member.leave()
    again = classic(scene, old.group, topic)
    assert again.join().error_code == 0
    assert [group.group_type for group in list_groups(scene)] == ["classic"]
    assert committed(scene, old.group, topic) == (0, 7, "note")


def test_modern_29_group_survives_a_restart(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.produce(topic, 5)
    member = started(scene, topic, instance_id="i")
    assert commit_as(scene, member, topic, 5) == 0
    epoch, assigned = member.epoch, set(member.assigned)
    scene.peer.restart()
    member.connection = scene.connect()
    scene.admin = scene.connect()

    def goes_on() -> bool:
        return bool(member.heartbeat().error_code == 0)

    wait_for(goes_on, "the coordinator")
    assert (member.epoch, member.assigned) == (epoch, assigned)
    answer = member.heartbeat(names=(topic.name,), is_full=True)
    assert (answer.member_epoch, member.numbers()) == (epoch, [0, 1])
    assert committed(scene, member.group, topic) == (0, 5, "")


def test_modern_30_heartbeat_interval_of_the_group(scene: Scene) -> None:
    group = scene.new_name("group")
    assert (
        scene.alter_configs(
            GROUP_RESOURCE, group, {"consumer.heartbeat.interval.ms": "300"}
        ).error_code
        == 0
    )
    member = ConsumerMember(scene, group).join(scene.topic())

    def is_told() -> bool:
        return bool(member.heartbeat().heartbeat_interval == milliseconds(300))

    wait_for(is_told, "the setting")


@pytest.mark.ours_only("Kafka takes any name and any length")
def test_modern_31_long_ids_are_refused(scene: Scene) -> None:
    member = ConsumerMember(scene, scene.new_name("group"))
    for fields in ({"rack_id": "x" * 250}, {"member_id": "x" * 250}):
        answer = member.heartbeat(**{"epoch": 0, "names": ("a",), **fields})
        assert answer.error_code == INVALID_REQUEST, fields


@pytest.mark.ours_only("Kafka has no such limit")
def test_modern_32_memory_of_groups_is_limited(scene: Scene) -> None:
    """A group of 8 MiB is full: 5,000 names of 249 characters take 1.5 MB a member."""
    group = scene.new_name("group")
    members = [ConsumerMember(scene, group) for _ in range(8)]
    codes = []
    for number, member in enumerate(members):
        names = tuple(f"{number}-{index}".ljust(249, "x") for index in range(4_000))
        codes.append(member.heartbeat(epoch=0, names=names).error_code)
    assert codes[0] == 0
    assert codes[-1] == GROUP_FULL
    for member, code in zip(members, codes, strict=True):
        if code == 0:  # Others need the memory.
            assert member.leave().error_code == 0


@pytest.mark.parametrize("name", IMPOSSIBLE_NAMES)
def test_modern_33_impossible_topic_does_not_exist(scene: Scene, name: str) -> None:
    topic, group = scene.topic(2), scene.new_name("group")
    member = ConsumerMember(scene, group)
    wait_for(lambda: member.heartbeat(names=(name, topic.name)).error_code == 0, "a heartbeat")
    wait_for(lambda: member.heartbeat().error_code == 0 and len(member.assigned) == 2, "partitions")
    assert member.assigned == {(topic.id, 0), (topic.id, 1)}
    wanted = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=(group,), include_authorized_operations=False
    )
    (described_member,) = scene.ask(wanted).groups[0].members
    assert set(described_member.subscribed_topic_names) == {name, topic.name}


def test_modern_34_members_keep_the_first_partitions(scene: Scene) -> None:
    topic, group = scene.topic(6), scene.new_name("group")
    first = ConsumerMember(scene, group)
    wait_for(lambda: first.heartbeat(names=(topic.name,)).error_code == 0, "a heartbeat")
    wait_for(lambda: first.heartbeat().error_code == 0 and len(first.assigned) == 6, "all")
    second = ConsumerMember(scene, group)
    second.heartbeat(names=(topic.name,))

    def divided() -> bool:
        assert first.heartbeat(owned=first.assigned).error_code == 0
        assert second.heartbeat(owned=second.assigned).error_code == 0
        return len(first.assigned) == len(second.assigned) == 3

    wait_for(divided, "three partitions for each")
    assert first.assigned == {(topic.id, number) for number in (0, 1, 2)}
    assert second.assigned == {(topic.id, number) for number in (3, 4, 5)}
