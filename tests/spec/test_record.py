"""The life of a record: delivered, settled, given back (docs/spec.md, «record»)."""

from __future__ import annotations

import pytest

from tests.spec.member import Member
from tests.spec.messages import ACCEPT, REJECT, RELEASE, RENEW, Topic
from tests.spec.scene import Scene


def reader(scene: Scene, *batches: int, **configs: str) -> tuple[Topic, Member]:
    """A topic with these log batches and the one member of a group that reads it."""
    topic = scene.topic()
    scene.produce(topic, *batches)
    return topic, scene.member(scene.group(**configs), topic)


def test_record_1_is_locked_for_one_member(scene: Scene) -> None:
    topic, member = reader(scene, 2)
    assert member.take(2) == [(0, 1, 1)]
    other = scene.member(member.group, topic)
    other.load()
    assert other.fetch().acquired == []


def test_record_2_delivery_count_increases_with_each_lock(scene: Scene) -> None:
    _, member = reader(scene, 1)
    for count in (1, 2, 3):
        assert member.take() == [(0, 0, count)]
        assert member.acknowledge([(0, 0, RELEASE)]).outcome == 0


@pytest.mark.parametrize("kind", [ACCEPT, REJECT], ids=["accepted", "rejected"])
def test_record_3_accepted_or_rejected_record_is_not_redelivered(scene: Scene, kind: int) -> None:
    topic, member = reader(scene, 2)
    member.take(2)
    assert member.acknowledge([(0, 1, kind, RELEASE)]).outcome == 0
    assert member.take() == [(1, 1, 2)]
    member.close()
    assert scene.member(member.group, topic).take() == [(1, 1, 3)]


def test_record_4_released_is_available_at_once(scene: Scene) -> None:
    topic, member = reader(scene)
    other = scene.member(member.group, topic).open()
    scene.produce(topic, 1)
    member.take()
    assert member.acknowledge([(0, 0, RELEASE)]).outcome == 0
    assert other.fetch().acquired == [(0, 0, 2)]


def test_record_5_released_after_its_last_delivery_is_archived(scene: Scene) -> None:
    topic, member = reader(scene, 1, share_delivery_count_limit="2")
    for count in (1, 2):
        assert member.take() == [(0, 0, count)]
        assert member.acknowledge([(0, 0, RELEASE)]).outcome == 0
    assert member.fetch(wait_ms=100).acquired == []
    assert scene.start_and_lag(member.group, topic)[1] == 0


def test_record_6_held_for_the_last_time_is_archived_when_its_session_ends(scene: Scene) -> None:
    topic, member = reader(scene, 1, share_delivery_count_limit="2")
    assert member.take() == [(0, 0, 1)]
    assert member.close().error == 0
    assert member.take() == [(0, 0, 2)]
    assert member.close().error == 0
    other = scene.member(member.group, topic)
    assert other.fetch(wait_ms=100).acquired == []


def test_record_7_lowered_limit_applies_to_held_records(scene: Scene) -> None:
    _, member = reader(scene, 2)
    assert member.take(2) == [(0, 1, 1)]
    assert member.acknowledge([(0, 1, RELEASE)]).outcome == 0
    assert member.take(2) == [(0, 1, 2)]
    scene.alter_group(member.group, share_delivery_count_limit="2")
    assert member.acknowledge([(0, 1, RELEASE)]).outcome == 0
    assert member.fetch(wait_ms=100).acquired == []


def test_record_8_raised_limit_applies_to_held_records(scene: Scene) -> None:
    _, member = reader(scene, 1, share_delivery_count_limit="2")
    assert member.take() == [(0, 0, 1)]
    assert member.acknowledge([(0, 0, RELEASE)]).outcome == 0
    assert member.take() == [(0, 0, 2)]
    scene.alter_group(member.group, share_delivery_count_limit="3")
    assert member.acknowledge([(0, 0, RELEASE)]).outcome == 0
    assert member.take() == [(0, 0, 3)]


def test_record_9_renewal_does_not_change_the_delivery_count(scene: Scene) -> None:
    _, member = reader(scene, 1, share_delivery_count_limit="2")
    member.take()
    for _ in range(3):
        assert member.acknowledge([(0, 0, RENEW)], renew=True).outcome == 0
    assert member.acknowledge([(0, 0, RELEASE)]).outcome == 0
    assert member.take() == [(0, 0, 2)]


def test_record_10_records_are_delivered_in_ascending_order(scene: Scene) -> None:
    _, member = reader(scene, 1, 1, 1, 1)
    taken = [member.take(max_records=1) for _ in range(4)]
    assert taken == [[(number, number, 1)] for number in range(4)]


def test_record_11_deliveries_of_groups_are_independent(scene: Scene) -> None:
    topic, member = reader(scene, 1)
    other = scene.member(scene.group(), topic)
    assert member.take() == [(0, 0, 1)]
    assert member.acknowledge([(0, 0, REJECT)]).outcome == 0
    assert other.take() == [(0, 0, 1)]


def test_record_12_is_settled_out_of_order(scene: Scene) -> None:
    topic, member = reader(scene, 4)
    member.take(4)
    assert member.acknowledge([(3, 3, ACCEPT)]).outcome == 0
    assert member.acknowledge([(1, 1, ACCEPT)]).outcome == 0
    assert scene.start_and_lag(member.group, topic)[1] == 2
    member.close()
    assert scene.member(member.group, topic).take(2) == [(0, 0, 2), (2, 2, 2)]


def test_record_13_members_of_a_group_share_a_partition(scene: Scene) -> None:
    topic, member = reader(scene, 2, 2, 2)
    other = scene.member(member.group, topic)
    taken = [member_.take(max_records=1) for member_ in (member, other, member)]
    assert taken == [[(0, 1, 1)], [(2, 3, 1)], [(4, 5, 1)]]
