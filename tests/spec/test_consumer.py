"""Ordinary consumer groups, and groups of one kind among requests of another
(docs/spec.md, «consumer»)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from kio.schema.describe_groups.v5 import request as describe_groups_v5
from kio.schema.describe_groups.v6 import request as describe_groups
from kio.schema.heartbeat.v4 import request as heartbeat
from kio.schema.join_group.v9 import request as join_group
from kio.schema.leave_group.v5 import request as leave_group
from kio.schema.offset_commit.v9 import request as offset_commit
from kio.schema.offset_delete.v0 import request as offset_delete
from kio.schema.offset_fetch.v9 import request as offset_fetch
from kio.schema.sync_group.v5 import request as sync_group

from tests.spec.administration import alter_offsets, delete_groups, delete_offsets, list_groups
from tests.spec.messages import Topic, milliseconds
from tests.spec.scene import TIMEOUT, Scene
from tests.spec.waiting import wait_for

NO_GROUP, WRONG_PROTOCOL, UNKNOWN_MEMBER, REBALANCING = 69, 23, 25, 27
ILLEGAL_GENERATION, MEMBER_ID_REQUIRED, FENCED_INSTANCE, NON_EMPTY = 22, 79, 82, 68
LOADING = {14, 15, 16}


class Consumer:
    """A member of a classic group, by hand."""

    def __init__(
        self, scene: Scene, group: str, *, instance: str | None = None, session_ms: int = 10_000
    ) -> None:
        self.connection = scene.connect()
        self.group = group
        self.instance = instance
        self.session_ms = session_ms
        self.member_id = ""
        self.generation = -1

    def join_request(self, protocol: str = "range", kind: str = "consumer") -> Any:
        offered = join_group.JoinGroupRequestProtocol(name=protocol, metadata=b"subscription")
        return join_group.JoinGroupRequest(
            group_id=self.group,
            session_timeout=milliseconds(self.session_ms),
            rebalance_timeout=TIMEOUT,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=kind,
            protocols=(offered,),
            reason=None,
        )

    def join(self, protocol: str = "range", kind: str = "consumer") -> Any:
        """Until it is in, or refused; a member id that is given is taken up."""

        def attempt() -> Any:
            answer = self.connection.ask(self.join_request(protocol, kind))
            if answer.error_code == MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                answer = self.connection.ask(self.join_request(protocol, kind))
            return None if answer.error_code in LOADING else answer

        return self.joined(wait_for(attempt, "the coordinator"))

    def joined(self, answer: Any) -> Any:
        if answer.error_code == 0:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, **assignments: bytes) -> Any:
        """``assignments`` only from the leader: by member id, with ``_`` for nothing."""
        given = tuple(
            sync_group.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments.items()
        )
        return self.connection.ask(
            sync_group.SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=given,
            )
        )

    def heartbeat(self, generation: int | None = None) -> int:
        request = heartbeat.HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return int(self.connection.ask(request).error_code)

    def leave(self) -> int:
        identity = leave_group.MemberIdentity(
            member_id=self.member_id, group_instance_id=self.instance, reason=None
        )
        request = leave_group.LeaveGroupRequest(group_id=self.group, members=(identity,))
        answer = self.connection.ask(request)
        return int(answer.error_code) or int(answer.members[0].error_code)

    def start(self) -> Consumer:
        """Join and sync as the only member."""
        assert self.join().error_code == 0
        assert self.sync(**{self.member_id: b"all"}).error_code == 0
        return self


def commit(
    scene: Scene, group: str, topic: Topic, offset: int, *, member: Consumer | None = None
) -> int:
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="note"
    )
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1 if member is None else member.generation,
        member_id="" if member is None else member.member_id,
        group_instance_id=None if member is None else member.instance,
        topics=(offset_commit.OffsetCommitRequestTopic(name=topic.name, partitions=(partition,)),),
    )

    def attempt() -> tuple[int] | None:
        code = int(scene.ask(request).topics[0].partitions[0].error_code)
        return None if code in LOADING else (code,)

    return wait_for(attempt, "the coordinator")[0]


def committed(scene: Scene, group: str, topic: Topic) -> tuple[int, int, str]:
    """Error of the group, offset and metadata."""
    wanted = offset_fetch.OffsetFetchRequestTopics(name=topic.name, partition_indexes=(0,))
    group_entry = offset_fetch.OffsetFetchRequestGroup(
        group_id=group, member_id=None, member_epoch=-1, topics=(wanted,)
    )
    [answer] = scene.ask(
        offset_fetch.OffsetFetchRequest(groups=(group_entry,), require_stable=False)
    ).groups
    if answer.error_code or not answer.topics:
        return int(answer.error_code), -1, ""
    [partition] = answer.topics[0].partitions
    assert partition.error_code == 0
    return 0, partition.committed_offset, partition.metadata or ""


def described(scene: Scene, group: str) -> Any:
    request = describe_groups.DescribeGroupsRequest(
        groups=(group,), include_authorized_operations=False
    )
    return scene.ask(request).groups[0]


def share_group(scene: Scene) -> str:
    return scene.member(scene.group(), scene.topic()).group


def consumer_group(scene: Scene) -> str:
    return Consumer(scene, scene.new_name("group")).start().group


def test_consumer_1_member_joins_with_the_id_from_the_coordinator(scene: Scene) -> None:
    consumer = Consumer(scene, scene.new_name("group"))

    def attempt() -> Any:
        answer = consumer.connection.ask(consumer.join_request())
        return None if answer.error_code in LOADING else answer

    first = wait_for(attempt, "the coordinator")
    assert (first.error_code, first.member_id != "") == (MEMBER_ID_REQUIRED, True)
    consumer.member_id = first.member_id
    answer = consumer.join()
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert (answer.leader, answer.protocol_name) == (consumer.member_id, "range")
    assert [member.member_id for member in answer.members] == [consumer.member_id]


def test_consumer_2_leader_assigns_the_partitions(scene: Scene) -> None:
    consumer = Consumer(scene, scene.new_name("group"))
    assert consumer.join().error_code == 0
    answer = consumer.sync(**{consumer.member_id: b"partitions 0 to 4"})
    assert (answer.error_code, answer.assignment) == (0, b"partitions 0 to 4")
    assert consumer.heartbeat() == 0


def test_consumer_3_another_member_makes_another_generation(scene: Scene) -> None:
    first = Consumer(scene, scene.new_name("group")).start()
    second = Consumer(scene, first.group)
    asked = second.connection.ask(second.join_request())
    second.member_id = asked.member_id
    waiting = second.join_request()
    second.connection.begin(waiting)
    wait_for(lambda: first.heartbeat() == REBALANCING, "the rebalance")
    again = first.join_request()
    first.connection.begin(again)
    assert first.joined(first.connection.finish(again)).error_code == 0
    assert second.joined(second.connection.finish(waiting)).error_code == 0
    assert first.generation == second.generation == 2


def test_consumer_4_old_generation_is_fenced(scene: Scene) -> None:
    consumer = Consumer(scene, scene.new_name("group")).start()
    assert consumer.heartbeat(generation=0) == ILLEGAL_GENERATION
    topic = scene.topic()
    consumer.generation = 0
    assert commit(scene, consumer.group, topic, 1, member=consumer) == ILLEGAL_GENERATION


def test_consumer_5_unknown_member_is_an_error(scene: Scene) -> None:
    consumer = Consumer(scene, scene.new_name("group")).start()
    consumer.member_id = f"somebody-{uuid4()}"
    assert consumer.heartbeat() == UNKNOWN_MEMBER
    assert consumer.leave() == UNKNOWN_MEMBER
    assert commit(scene, consumer.group, scene.topic(), 1, member=consumer) == UNKNOWN_MEMBER


def test_consumer_6_commits_and_reads_offsets(scene: Scene) -> None:
    topic = scene.topic()
    consumer = Consumer(scene, scene.new_name("group")).start()
    assert committed(scene, consumer.group, topic) == (0, -1, "")
    assert commit(scene, consumer.group, topic, 7, member=consumer) == 0
    assert committed(scene, consumer.group, topic) == (0, 7, "note")


def test_consumer_7_offsets_may_be_committed_without_members(scene: Scene) -> None:
    topic, group = scene.topic(), scene.new_name("group")
    assert commit(scene, group, topic, 5) == 0
    assert committed(scene, group, topic) == (0, 5, "note")
    occupied = Consumer(scene, scene.new_name("group")).start()
    assert commit(scene, occupied.group, topic, 5) == UNKNOWN_MEMBER


def test_consumer_8_members_agree_on_a_protocol(scene: Scene) -> None:
    consumer = Consumer(scene, scene.new_name("group")).start()
    other = Consumer(scene, consumer.group)
    assert other.join(protocol="sticky").error_code == WRONG_PROTOCOL
    assert other.join(kind="connect").error_code == WRONG_PROTOCOL


def test_consumer_9_static_member_replaces_itself(scene: Scene) -> None:
    old = Consumer(scene, scene.new_name("group"), instance="instance-1").start()
    new = Consumer(scene, old.group, instance="instance-1")
    assert new.join().error_code == 0
    assert new.generation == old.generation
    assert old.heartbeat() == FENCED_INSTANCE


def test_consumer_10_leaves(scene: Scene) -> None:
    consumer = Consumer(scene, scene.new_name("group")).start()
    assert described(scene, consumer.group).group_state == "Stable"
    assert consumer.leave() == 0
    assert described(scene, consumer.group).group_state == "Empty"
    assert consumer.heartbeat() == UNKNOWN_MEMBER


def test_consumer_11_group_is_described_and_listed(scene: Scene) -> None:
    consumer = Consumer(scene, scene.new_name("group")).start()
    about = described(scene, consumer.group)
    assert (about.error_code, about.protocol_type, about.protocol_data) == (0, "consumer", "range")
    [member] = about.members
    assert (member.member_id, member.client_id) == (consumer.member_id, "spec")
    assert (member.member_metadata, member.member_assignment) == (b"subscription", b"all")
    [group] = list_groups(scene)
    assert (group.group_type, group.protocol_type, group.group_state) == (
        "classic",
        "consumer",
        "Stable",
    )


def test_consumer_12_group_with_members_is_not_deleted(scene: Scene) -> None:
    topic = scene.topic()
    consumer = Consumer(scene, scene.new_name("group")).start()
    assert commit(scene, consumer.group, topic, 3, member=consumer) == 0
    assert delete_groups(scene, consumer.group) == [NON_EMPTY]
    assert consumer.leave() == 0
    assert delete_groups(scene, consumer.group) == [0]
    assert committed(scene, consumer.group, topic) == (0, -1, "")


def test_consumer_13_share_heartbeat_does_not_find_a_consumer_group(scene: Scene) -> None:
    group = consumer_group(scene)
    answer = scene.member(group).heartbeat(topics=[scene.topic().name])
    assert answer.error_code == NO_GROUP


def test_consumer_14_classic_join_of_a_share_group_is_refused(scene: Scene) -> None:
    assert Consumer(scene, share_group(scene)).join().error_code == WRONG_PROTOCOL


def test_consumer_15_share_group_has_no_committed_offsets(scene: Scene) -> None:
    group, topic = share_group(scene), scene.topic()
    assert commit(scene, group, topic, 1) == NO_GROUP
    assert committed(scene, group, topic) == (0, -1, "")
    partition = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    wanted = offset_delete.OffsetDeleteRequestTopic(name=topic.name, partitions=(partition,))
    request = offset_delete.OffsetDeleteRequest(group_id=group, topics=(wanted,))
    assert scene.ask(request).error_code == NO_GROUP


def test_consumer_16_share_group_is_described_as_a_dead_consumer_group(scene: Scene) -> None:
    group = share_group(scene)
    about = described(scene, group)
    assert (about.error_code, about.group_state) == (NO_GROUP, "Dead")
    request = describe_groups_v5.DescribeGroupsRequest(
        groups=(group,), include_authorized_operations=False
    )
    [old] = scene.ask(request).groups
    assert (old.error_code, old.group_state) == (0, "Dead")


def test_consumer_17_share_administration_does_not_find_a_consumer_group(scene: Scene) -> None:
    group, topic = consumer_group(scene), scene.topic()
    assert scene.describe(group).error_code == NO_GROUP
    assert alter_offsets(scene, group, topic.name, 0).error_code == NO_GROUP
    assert delete_offsets(scene, group, topic.name).error_code == NO_GROUP


def test_consumer_18_both_kinds_read_one_topic(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 2)
    member = scene.member(scene.group(), topic)
    consumer = Consumer(scene, scene.new_name("group")).start()
    assert member.take(2) == [(0, 1, 1)]
    assert commit(scene, consumer.group, topic, 1, member=consumer) == 0
    assert committed(scene, consumer.group, topic) == (0, 1, "note")
    types = {group.group_type for group in list_groups(scene)}
    assert types == {"share", "classic"}


def test_consumer_19_deleted_topic_takes_its_offsets_along(scene: Scene) -> None:
    topic, group = scene.topic(), scene.new_name("group")
    assert commit(scene, group, topic, 5) == 0
    scene.delete_topic(topic)
    again = scene.topic(name=topic.name)
    wait_for(lambda: committed(scene, group, again)[1] == -1, "the offset to be gone")


def test_consumer_20_empty_share_group_keeps_its_kind(scene: Scene) -> None:
    member = scene.member(scene.group(), scene.topic())
    member.leave()
    assert Consumer(scene, member.group).join().error_code == WRONG_PROTOCOL
    empty = Consumer(scene, scene.new_name("group")).start()
    assert empty.leave() == 0
    answer = scene.member(empty.group).heartbeat(topics=[scene.topic().name])
    assert answer.error_code == NO_GROUP


def test_consumer_21_silent_member_is_removed(scene: Scene) -> None:
    consumer = Consumer(scene, scene.new_name("group"), session_ms=1000).start()
    wait_for(lambda: described(scene, consumer.group).group_state == "Empty", "its removal")
    assert consumer.heartbeat() == UNKNOWN_MEMBER


def test_consumer_22_new_member_is_removed_with_its_connection(scene: Scene) -> None:
    """Kafka keeps it as a member."""
    first = Consumer(scene, scene.new_name("group")).start()
    second = Consumer(scene, first.group)
    second.member_id = second.connection.ask(second.join_request()).member_id
    second.connection.begin(second.join_request())
    wait_for(lambda: first.heartbeat() == REBALANCING, "the rebalance")
    second.connection.socket.close()
    members = {"ours": 1, "kafka": 2}[scene.kind]
    wait_for(lambda: len(described(scene, first.group).members) == members, "the broker to notice")
    assert len(first.join().members) == members


def test_consumer_23_group_without_an_assignment_is_removed(scene: Scene) -> None:
    """The member id from the first join is never used."""
    consumer = Consumer(scene, scene.new_name("group"), session_ms=300)
    [member_id] = {consumer.connection.ask(consumer.join_request()).member_id}
    assert member_id
    kept = {"ours": [], "kafka": [consumer.group]}[scene.kind]
    consumer.member_id = member_id

    def left() -> list[str]:
        return [group.group_id for group in list_groups(scene)]

    wait_for(lambda: left() == kept, "what is left")
    wait_for(lambda: consumer.heartbeat() == UNKNOWN_MEMBER, "the id to be forgotten")
    assert left() == kept
