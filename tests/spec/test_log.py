"""What a moved log start and settled records do to a group's position (docs/spec.md, «log»)."""

from __future__ import annotations

from tests.spec.member import Member
from tests.spec.messages import ACCEPT, RELEASE, Topic
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for


def reader(scene: Scene, *batches: int) -> tuple[Topic, Member]:
    """A topic with these log batches and the one member of a group that reads it."""
    topic = scene.topic()
    scene.produce(topic, *batches)
    return topic, scene.member(scene.group(), topic)


def test_log_1_records_below_the_log_start_are_not_delivered(scene: Scene) -> None:
    topic, member = reader(scene, 2, 2, 2)
    scene.delete_records(topic, 4)
    assert member.take() == [(4, 5, 1)]


def test_log_2_released_records_below_the_log_start_are_dropped(scene: Scene) -> None:
    topic, member = reader(scene, 2, 2)
    member.take(4)
    assert member.acknowledge([(0, 3, RELEASE)]).outcome == 0
    scene.delete_records(topic, 2)
    assert member.take(2) == [(2, 3, 2)]


def test_log_3_acknowledgements_below_the_log_start_are_accepted(scene: Scene) -> None:
    topic, member = reader(scene, 2, 2)
    member.take(4)
    scene.delete_records(topic, 2)
    member.fetch(wait_ms=50)
    for kind in (ACCEPT, RELEASE):
        assert member.acknowledge([(0, 1, kind)]).outcome == 0
    assert member.acknowledge([(2, 3, ACCEPT)]).outcome == 0
    scene.produce(topic, 1)
    assert member.take() == [(4, 4, 1)]


def test_log_4_start_within_a_log_batch(scene: Scene) -> None:
    topic, member = reader(scene, 4)
    scene.delete_records(topic, 2)
    assert member.take() == [(2, 3, 1)]


def test_log_5_all_records_deleted(scene: Scene) -> None:
    topic, member = reader(scene, 3)
    member.take(3)
    scene.delete_records(topic, 3)
    scene.produce(topic, 1)
    assert wait_for(lambda: member.fetch(wait_ms=500).acquired, "the new one") == [(3, 3, 1)]


def test_log_6_lag_counts_unsettled_records(scene: Scene) -> None:
    topic, member = reader(scene, 10)
    member.take(10)
    for done, (first, last) in ((3, (0, 2)), (5, (5, 6)), (6, (9, 9)), (8, (3, 4)), (10, (7, 8))):
        assert member.acknowledge([(first, last, ACCEPT)]).outcome == 0
        assert scene.start_and_lag(member.group, topic)[1] == 10 - done


def test_log_7_lag_counts_undelivered_records(scene: Scene) -> None:
    topic, member = reader(scene, 4)
    member.take(4)
    assert member.acknowledge([(0, 3, ACCEPT)]).outcome == 0
    scene.produce(topic, 5)
    assert scene.start_and_lag(member.group, topic)[1] == 5


def test_log_8_persisted_start(scene: Scene) -> None:
    """Kafka writes the start before the change, with the count that makes up for it."""
    topic, member = reader(scene, 7)
    member.take(7)
    assert member.acknowledge([(0, 4, ACCEPT)]).outcome == 0
    start = {"ours": 5, "kafka": 0}[scene.kind]
    assert scene.start_and_lag(member.group, topic) == (start, 2)


def test_log_9_start_offset_does_not_pass_unsettled_records(scene: Scene) -> None:
    topic, member = reader(scene, 6)
    member.take(6)
    assert member.acknowledge([(2, 5, ACCEPT)]).outcome == 0
    assert scene.start_and_lag(member.group, topic) == (0, 2)
    assert member.acknowledge([(0, 0, ACCEPT)]).outcome == 0
    start = {"ours": 1, "kafka": 0}[scene.kind]
    assert scene.start_and_lag(member.group, topic) == (start, 1)


def test_log_10_records_have_the_produced_bytes(scene: Scene) -> None:
    topic, member = reader(scene, 3)
    plain = scene.fetch_bytes(topic, 0)
    answer = member.fetch(wait_ms=5000)
    assert bytes(answer.partitions[0].records) == plain


def test_log_12_lag_follows_its_start_at_once(scene: Scene) -> None:
    """Kafka's follows when somebody settles something."""
    topic, member = reader(scene, *[1] * 8)
    member.take(8)
    assert member.acknowledge([(1, 1, ACCEPT), (4, 4, ACCEPT), (6, 6, ACCEPT)]).outcome == 0
    scene.delete_records(topic, 4)
    expected = {"ours": (5, 2), "kafka": (0, 5)}[scene.kind]
    assert scene.start_and_lag(member.group, topic) == expected


def test_log_11_records_held_below_the_log_start_end_with_their_session(scene: Scene) -> None:
    topic, member = reader(scene, 2, 2)
    member.take(4)
    scene.delete_records(topic, 2)
    other = scene.member(member.group, topic)
    other.load()
    assert member.close().error == 0
    assert other.take(2) == [(2, 3, 2)]
