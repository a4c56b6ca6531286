"""Describing, listing and deleting share groups (docs/spec.md, «group»)."""

from __future__ import annotations

from kio.schema.delete_groups.v2 import request as delete_groups_request
from kio.schema.share_group_describe.v1 import request as share_group_describe

from tests.spec.administration import delete_groups, list_groups
from tests.spec.messages import ACCEPT, RELEASE
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for

NON_EMPTY, NO_GROUP, UNKNOWN_PARTITION, UNKNOWN_SERVER_ERROR = 68, 69, 3, -1


def test_group_1_is_described_with_its_members(scene: Scene) -> None:
    topic = scene.topic(2)
    member = scene.member(scene.group(), topic).until_assigned(2)
    described = scene.describe(member.group)
    assert (described.error_code, described.group_state) == (0, "Stable")
    assert described.assignor_name == "simple"
    [described_member] = described.members
    assert (described_member.member_id, described_member.member_epoch) == (
        member.member_id,
        member.epoch,
    )
    assert (described_member.client_id, described_member.subscribed_topic_names) == (
        "spec",
        (topic.name,),
    )
    assert described_member.client_host in {"127.0.0.1", "/127.0.0.1"}
    [assigned] = described_member.assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name) == (topic.id, topic.name)
    assert sorted(assigned.partitions) == [0, 1]


def test_group_2_epochs_of_group_and_assignment_are_described(scene: Scene) -> None:
    member = scene.member(scene.group(), scene.topic())
    described = scene.describe(member.group)
    assert described.group_epoch == described.assignment_epoch == member.epoch


def test_group_3_rack_of_a_member_is_described(scene: Scene) -> None:
    topic, member = scene.topic(), scene.member(scene.group())
    member.heartbeat(topics=[topic.name], rack="rack-7")
    assert [described.rack_id for described in scene.describe(member.group).members] == ["rack-7"]


def test_group_4_without_members_is_empty(scene: Scene) -> None:
    member = scene.member(scene.group(), scene.topic())
    member.leave()
    described = scene.describe(member.group)
    assert (described.error_code, described.group_state, described.members) == (0, "Empty", ())


def test_group_5_describe_of_an_unknown_group_is_an_error_with_a_message(scene: Scene) -> None:
    group = scene.new_name("group")
    described = scene.describe(group)
    assert (described.error_code, described.members) == (NO_GROUP, ())
    assert group in described.error_message


def test_group_6_is_listed_as_a_share_group(scene: Scene) -> None:
    member = scene.member(scene.group(), scene.topic())
    [group] = list_groups(scene)
    assert (group.group_id, group.group_type, group.protocol_type) == (
        member.group,
        "share",
        "share",
    )
    assert group.group_state == "Stable"


def test_group_7_is_listed_by_state(scene: Scene) -> None:
    topic = scene.topic()
    stable = scene.member(scene.group(), topic)
    empty = scene.member(scene.group(), topic)
    empty.leave()
    assert [group.group_id for group in list_groups(scene, states=("Stable",))] == [stable.group]
    assert [group.group_id for group in list_groups(scene, states=("empty",))] == [empty.group]
    assert list_groups(scene, states=("Dead",)) == []


def test_group_8_is_listed_by_type(scene: Scene) -> None:
    member = scene.member(scene.group(), scene.topic())
    assert [group.group_id for group in list_groups(scene, types=("Share",))] == [member.group]
    assert list_groups(scene, types=("consumer",)) == []
    assert list_groups(scene, types=("nonsense",)) == []


def test_group_9_with_members_is_not_deleted(scene: Scene) -> None:
    member = scene.member(scene.group(), scene.topic())
    assert delete_groups(scene, member.group) == [NON_EMPTY]
    assert member.heartbeat().error_code == 0


def test_group_10_deletion_of_an_unknown_group_is_an_error(scene: Scene) -> None:
    empty = scene.member(scene.group(), scene.topic())
    empty.leave()
    assert delete_groups(scene, scene.new_name("group"), empty.group) == [NO_GROUP, 0]


def test_group_17_named_twice_is_deleted_once(scene: Scene) -> None:
    empty = scene.member(scene.group(), scene.topic())
    empty.leave()
    names = (empty.group, empty.group)
    [result] = scene.ask(delete_groups_request.DeleteGroupsRequest(groups_names=names)).results
    assert (result.group_id, result.error_code) == (empty.group, 0)


def test_group_11_deletion_removes_the_share_state(scene: Scene) -> None:
    """A group of the same name starts with a new state and the former settings."""
    topic = scene.topic()
    scene.produce(topic, 3)
    member = scene.member(scene.group(), topic)
    member.take(3)
    assert member.close([(0, 0, ACCEPT), (1, 2, RELEASE)]).outcome == 0
    member.leave()
    scene.drop(member)
    assert delete_groups(scene, member.group) == [0]
    assert scene.describe(member.group).error_code == NO_GROUP
    assert list_groups(scene) == []
    again = scene.member(member.group, topic)
    assert again.take(3) == [(0, 2, 1)]


def test_group_12_state_of_a_group_without_members_is_kept(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 2)
    member = scene.member(scene.group(), topic)
    member.take(2)
    assert member.close([(0, 1, RELEASE, ACCEPT)]).outcome == 0
    member.leave()
    scene.drop(member)
    assert scene.member(member.group, topic).take() == [(0, 0, 2)]


def test_group_13_ids_may_hold_colons_and_any_letters(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 1)
    for odd in ("a:b:0", "grüße", "line\nbreak", "..", "x" * 200):
        group = f"{scene.name}.{odd}"
        scene.alter_group(group, share_auto_offset_reset="earliest")
        member = scene.member(group, topic)
        assert member.take() == [(0, 0, 1)]
        assert member.acknowledge([(0, 0, ACCEPT)]).outcome == 0
        assert scene.start_and_lag(group, topic)[1] == 0


def test_group_14_member_that_leaves_is_described_no_more(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    first = scene.member(group, topic)
    second = scene.member(group)
    second.heartbeat(topics=[topic.name])
    first.leave()
    assert [member.member_id for member in scene.describe(group).members] == [second.member_id]
    wait_for(lambda: second.heartbeat() and second.assigned == {(topic.id, 0)}, "the partition")


def test_group_15_authorized_operations_are_included_on_request(scene: Scene) -> None:
    """The bits of READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS."""
    member = scene.member(scene.group(), scene.topic())
    request = share_group_describe.ShareGroupDescribeRequest(
        group_ids=(member.group,), include_authorized_operations=True
    )
    [asked] = scene.ask(request).groups
    assert asked.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))
    assert scene.describe(member.group).authorized_operations == -(2**31)


def test_group_16_late_acknowledgement_to_a_deleted_group_is_refused(scene: Scene) -> None:
    """It comes from a share session with records whose owner is no member. Ours answers that the
    share partition does not exist, Kafka answers with an unknown server error.
    """
    topic = scene.topic()
    scene.produce(topic, 2)
    member = scene.member(scene.group(), topic)
    member.take(2)
    member.leave()
    assert delete_groups(scene, member.group) == [0]
    outcome = member.acknowledge([(0, 1, ACCEPT)]).outcome
    assert outcome == {"ours": UNKNOWN_PARTITION, "kafka": UNKNOWN_SERVER_ERROR}[scene.kind]
