"""Joining, staying and leaving: ShareGroupHeartbeat (docs/spec.md, «heartbeat»)."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.spec.messages import IMPOSSIBLE_NAMES, JOIN, LEAVE, Topic
from tests.spec.peer import MEMBERS_MAX
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for

FENCED, UNKNOWN_MEMBER, NO_GROUP, FULL, INVALID = 110, 25, 69, 81, 42


def test_heartbeat_1_join_keeps_the_member_id_and_returns_an_epoch(scene: Scene) -> None:
    topic, member = scene.topic(), scene.member(scene.group())
    answer = member.heartbeat(topics=[topic.name])
    assert (answer.error_code, answer.member_id) == (0, member.member_id)
    assert answer.member_epoch == 2
    assert answer.error_message is None


def test_heartbeat_2_first_assignment_of_a_new_group(scene: Scene) -> None:
    topic, member = scene.topic(3), scene.member(scene.group())
    assignment = member.heartbeat(topics=[topic.name]).assignment
    first = sum(len(partition.partitions) for partition in assignment.topic_partitions)
    assert first == {"ours": 3, "kafka": 0}[scene.kind]
    member.until_assigned(3)
    assert member.assigned == {(topic.id, 0), (topic.id, 1), (topic.id, 2)}


def test_heartbeat_3_joining_needs_topics(scene: Scene) -> None:
    member = scene.member(scene.group())
    assert member.heartbeat(topics=None).error_code == INVALID
    assert member.heartbeat(topics=[]).error_code == INVALID


def test_heartbeat_4_empty_names_and_epochs_below_minus_one_are_invalid(scene: Scene) -> None:
    topic = scene.topic()
    member = scene.member(scene.group())
    assert member.heartbeat(topics=[topic.name], member_id="").error_code == INVALID
    assert member.heartbeat(topics=[topic.name], rack="").error_code == INVALID
    assert member.heartbeat(topics=[topic.name], epoch=-2).error_code == INVALID
    for group in ("", " "):
        member.group = group
        assert member.heartbeat(topics=[topic.name]).error_code == INVALID


def test_heartbeat_5_only_a_join_creates_a_missing_group(scene: Scene) -> None:
    topic, member = scene.topic(), scene.member(scene.new_name("group"))
    assert member.heartbeat(epoch=1, topics=[topic.name]).error_code == NO_GROUP
    assert member.heartbeat(epoch=LEAVE).error_code == NO_GROUP
    assert member.heartbeat(epoch=JOIN, topics=[topic.name]).error_code == 0


def test_heartbeat_6_only_a_join_creates_a_missing_member(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.member(group, topic)
    stranger = scene.member(group)
    assert stranger.heartbeat(epoch=1, topics=[topic.name]).error_code == UNKNOWN_MEMBER
    assert stranger.heartbeat(epoch=LEAVE).error_code == UNKNOWN_MEMBER
    assert stranger.heartbeat(epoch=JOIN, topics=[topic.name]).error_code == 0


def test_heartbeat_7_epoch_ahead_of_the_members_is_fenced(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = scene.member(group, topic)
    assert member.heartbeat(epoch=member.epoch + 1).error_code == FENCED


def test_heartbeat_8_epoch_before_the_last_one_is_fenced(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = scene.member(group, topic)
    for epoch in (3, 4):
        scene.member(group).heartbeat(topics=[topic.name])
        wait_for(lambda epoch=epoch: member.heartbeat().member_epoch >= epoch, f"epoch {epoch}")
    assert member.heartbeat(epoch=1).error_code == FENCED


def test_heartbeat_9_previous_epoch_is_answered_with_the_present_one(scene: Scene) -> None:
    """The answer with the new epoch was lost."""
    topic, group = scene.topic(), scene.group()
    member = scene.member(group, topic)
    before = member.epoch
    scene.member(group).heartbeat(topics=[topic.name])
    after = wait_for(
        lambda: answer.member_epoch if (answer := member.heartbeat()).member_epoch > before else 0,
        "the next epoch",
    )
    again = member.heartbeat(epoch=before)
    assert (again.error_code, again.member_epoch) == (0, after)


def test_heartbeat_10_member_may_join_again_under_its_id(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member, other = scene.member(group, topic), scene.member(group)
    before = member.epoch
    other.heartbeat(topics=[topic.name])
    wait_for(lambda: member.heartbeat().member_epoch > before, "the next epoch")
    assert member.heartbeat(epoch=before + 5).error_code == FENCED
    member.join(topic)
    assert member.assigned == {(topic.id, 0)}
    described = {member.member_id for member in scene.describe(group).members}
    assert described == {member.member_id, other.member_id}


def test_heartbeat_11_leaving_is_answered_with_minus_one_and_no_assignment(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = scene.member(group, topic)
    answer = member.leave()
    assert (answer.error_code, answer.member_epoch) == (0, -1)
    assert (answer.member_id, answer.assignment) == (member.member_id, None)
    assert scene.describe(group).members == ()


def test_heartbeat_12_full_group_refuses_new_members_and_keeps_existing_ones(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    members = [scene.member(group) for _ in range(MEMBERS_MAX)]
    for member in members:
        assert member.heartbeat(topics=[topic.name]).error_code == 0
    assert scene.member(group).heartbeat(topics=[topic.name]).error_code == FULL
    assert members[0].heartbeat(epoch=JOIN, topics=[topic.name]).error_code == 0


def test_heartbeat_13_unchanged_assignment_is_not_repeated(scene: Scene) -> None:
    topic = scene.topic()
    member = scene.member(scene.group(), topic)
    assert member.heartbeat().assignment is None


def test_heartbeat_14_join_and_subscription_return_the_assignment(scene: Scene) -> None:
    topic = scene.topic()
    member = scene.member(scene.group(), topic)
    for epoch in (member.epoch, JOIN):
        answer = member.heartbeat(epoch=epoch, topics=[topic.name])
        [assigned] = answer.assignment.topic_partitions
        assert (assigned.topic_id, assigned.partitions) == (topic.id, (0,))


def test_heartbeat_15_subscription_is_kept_until_it_is_replaced(scene: Scene) -> None:
    first, second = scene.topic(), scene.topic()
    member = scene.member(scene.group(), first)
    member.heartbeat(topics=None)
    assert member.assigned == {(first.id, 0)}
    member.heartbeat(topics=[second.name])
    wait_for(lambda: member.heartbeat() and member.assigned == {(second.id, 0)}, "the other topic")


def test_heartbeat_16_missing_topic_may_be_subscribed(scene: Scene) -> None:
    name = scene.new_name("topic")
    member = scene.member(scene.group())
    answer = member.heartbeat(topics=[name])
    assert (answer.error_code, answer.assignment.topic_partitions) == (0, ())
    topic = scene.topic(2, name=name)
    member.until_assigned(2)
    assert member.assigned == {(topic.id, 0), (topic.id, 1)}


def test_heartbeat_17_new_partitions_are_assigned(scene: Scene) -> None:
    topic = scene.topic()
    member = scene.member(scene.group(), topic)
    scene.grow(topic, 3)
    member.until_assigned(3)
    assert member.assigned == {(topic.id, 0), (topic.id, 1), (topic.id, 2)}


def test_heartbeat_18_deleted_topic_leaves_the_assignment(scene: Scene) -> None:
    kept, deleted = scene.topic(), scene.topic()
    member = scene.member(scene.group(), kept, deleted).until_assigned(2)
    scene.delete_topic(deleted)
    wait_for(lambda: member.heartbeat() and member.assigned == {(kept.id, 0)}, "one topic less")


def test_heartbeat_19_recreated_topic_is_another_topic(scene: Scene) -> None:
    topic = scene.topic()
    member = scene.member(scene.group(), topic)
    scene.delete_topic(topic)
    again = scene.topic(name=topic.name)
    assert again.id != topic.id
    wait_for(lambda: member.heartbeat() and member.assigned == {(again.id, 0)}, "the new topic")


def test_heartbeat_20_silent_member_is_removed(scene: Scene) -> None:
    topic = scene.topic()
    group = scene.group(
        share_session_timeout_ms="1000",
        share_heartbeat_interval_ms="100",
    )
    member = scene.member(group, topic)
    wait_for(lambda: scene.describe(group).members == (), "the member to be removed")
    assert member.heartbeat().error_code == UNKNOWN_MEMBER


def test_heartbeat_21_interval_is_a_setting_of_the_group(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    assert scene.member(group).heartbeat(topics=[topic.name]).heartbeat_interval.seconds == 5
    scene.alter_group(group, share_heartbeat_interval_ms="7000")
    assert scene.member(group).heartbeat(topics=[topic.name]).heartbeat_interval.seconds == 7


def test_heartbeat_22_group_epoch_increases_with_every_join_and_leave(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.member(group, topic)
    epochs = [scene.describe(group).group_epoch]
    second = scene.member(group)
    second.heartbeat(topics=[topic.name])
    epochs.append(scene.describe(group).group_epoch)
    second.leave()
    epochs.append(scene.describe(group).group_epoch)
    assert epochs[1] == epochs[0] + 1
    assert epochs[2] == epochs[1] + 1


def test_heartbeat_23_partitions_of_a_leaving_member_are_reassigned(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    first = scene.member(group, topic).until_assigned(2)
    second = scene.member(group, topic)
    wait_for(lambda: first.heartbeat() and len(first.assigned) == 1, "one partition each")
    assert first.assigned | second.assigned == {(topic.id, 0), (topic.id, 1)}
    second.leave()
    first.until_assigned(2)


def test_heartbeat_24_interval_between_assignments(scene: Scene) -> None:
    """The second member has nothing: ours gives it something at once, Kafka when it is time."""
    topic, group = scene.topic(2), scene.group(share_assignment_interval_ms="15000")
    first = scene.member(group)
    first.heartbeat(topics=[topic.name])
    second = scene.member(group)
    answer = second.heartbeat(topics=[topic.name])
    assert answer.error_code == 0
    assert len(second.assigned) == {"ours": 1, "kafka": 0}[scene.kind]
    assert answer.member_epoch == {"ours": 3, "kafka": 2}[scene.kind]


def test_heartbeat_25_leaving_needs_no_epoch_of_the_members(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = scene.member(group, topic)
    member.epoch = 1000
    assert member.leave().error_code == 0


def test_heartbeat_26_assignment_is_repeated_after_a_lost_response(scene: Scene) -> None:
    """Ours repeats it with the epoch that the member never received; Kafka sends only the epoch."""
    topic, group = scene.topic(2), scene.group()
    member = scene.member(group, topic).until_assigned(2)
    before = member.epoch
    scene.member(group).heartbeat(topics=[topic.name])
    wait_for(lambda: member.heartbeat(epoch=before).member_epoch > before, "the next epoch")
    again = member.heartbeat(epoch=before)
    assert again.member_epoch > before
    assert (again.assignment is not None) is {"ours": True, "kafka": False}[scene.kind]


def test_heartbeat_27_member_id_has_36_characters_at_most(scene: Scene) -> None:
    topic, member = scene.topic(), scene.member(scene.group())
    assert member.heartbeat(topics=[topic.name], member_id="m" * 37).error_code == INVALID
    assert member.heartbeat(topics=[topic.name], member_id="m" * 36).error_code == 0


@pytest.mark.parametrize("name", IMPOSSIBLE_NAMES)
def test_heartbeat_28_impossible_topic_does_not_exist(scene: Scene, name: str) -> None:
    topic, group = scene.topic(), scene.group()
    other = Topic(name, UUID(int=0))
    member = scene.member(group, other, topic)
    assert member.assigned == {(topic.id, 0)}
    (described,) = scene.describe(group).members
    assert set(described.subscribed_topic_names) == {name, topic.name}
