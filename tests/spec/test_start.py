"""Where a share group begins to read (docs/spec.md, «start»)."""

from __future__ import annotations

import time

from tests.spec.member import Member
from tests.spec.messages import ACCEPT, Topic
from tests.spec.scene import Scene

HOUR_MS = 3_600_000
OFFSET_NOT_AVAILABLE = 78


def reader(scene: Scene, topic: Topic, reset: str) -> Member:
    """The first member of a new group, its share partitions loaded."""
    member = scene.member(scene.group(share_auto_offset_reset=reset), topic)
    member.load()
    return member


def test_start_1_earliest_is_the_logs_beginning(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 2)
    assert reader(scene, topic, "earliest").close().error == 0
    member = scene.member(scene.group(), topic)
    assert member.take(2) == [(0, 1, 1)]


def test_start_2_latest_is_the_logs_end(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 2)
    member = reader(scene, topic, "latest")
    scene.produce(topic, 1)
    assert member.take() == [(2, 2, 1)]


def test_start_3_latest_is_the_default(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 2)
    member = scene.member(scene.new_name("group"), topic)
    member.load()
    scene.produce(topic, 1)
    assert member.take() == [(2, 2, 1)]


def test_start_4_latest_is_resolved_once(scene: Scene) -> None:
    """Ours resolves it once; Kafka resolves it again after a time without sessions."""
    topic = scene.topic()
    member = reader(scene, topic, "latest")
    scene.drop(member)
    scene.produce(topic, 3)
    later = scene.member(member.group)
    later.topics = (topic,)
    if scene.kind == "kafka":
        later.load()
        scene.produce(topic, 1)
    assert later.take() == {"ours": [(0, 2, 1)], "kafka": [(3, 3, 1)]}[scene.kind]


def test_start_5_by_duration_starts_at_the_first_young_enough_record(scene: Scene) -> None:
    topic = scene.topic()
    now = int(time.time() * 1000)
    scene.produce(topic, 2, at_ms=now - 3 * HOUR_MS)
    scene.produce(topic, 2, at_ms=now - HOUR_MS // 2)
    member = scene.member(scene.group(share_auto_offset_reset="by_duration:PT1H"), topic)
    assert member.take(2) == [(2, 3, 1)]


def test_start_6_age_that_no_record_has(scene: Scene) -> None:
    """Ours starts at the end; Kafka is in error until there is one."""
    topic = scene.topic()
    scene.produce(topic, 2, at_ms=int(time.time() * 1000) - 3 * HOUR_MS)
    member = scene.member(scene.group(share_auto_offset_reset="by_duration:PT1H"), topic)
    answer = member.fetch(wait_ms=500)
    if scene.kind == "kafka":
        assert answer.errors == {0: OFFSET_NOT_AVAILABLE}
    else:
        assert (answer.errors, answer.acquired) == ({0: 0}, [])
    scene.produce(topic, 1)
    assert member.take() == [(2, 2, 1)]


def test_start_7_new_partition_of_a_known_topic_is_read_from_its_beginning(scene: Scene) -> None:
    topic = scene.topic()
    member = reader(scene, topic, "latest")
    grown = scene.grow(topic, 2)
    scene.produce(grown, 2, partition=1)
    member.until_assigned(2)
    answer = member.fetch(partitions=[(topic.id, 1)], wait_ms=5000)
    assert answer.by_partition == {1: [(0, 1, 1)]}


def test_start_8_start_offsets_of_groups_are_independent(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 2)
    first = scene.member(scene.group(), topic)
    assert first.take(2) == [(0, 1, 1)]
    assert first.acknowledge([(0, 1, ACCEPT)]).outcome == 0
    assert scene.member(scene.group(), topic).take(2) == [(0, 1, 1)]


def test_start_9_group_continues_at_its_start_offset(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 2)
    member = scene.member(scene.group(), topic)
    member.take(2)
    assert member.close([(0, 1, ACCEPT)]).outcome == 0
    member.leave()
    member.connection.socket.close()
    scene.produce(topic, 2)
    assert scene.member(member.group, topic).take(2) == [(2, 3, 1)]


def test_start_10_recreated_topic_is_read_from_its_beginning(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 2)
    member = scene.member(scene.group(), topic)
    member.take(2)
    assert member.close([(0, 1, ACCEPT)]).outcome == 0
    scene.delete_topic(topic)
    again = scene.topic(name=topic.name)
    scene.produce(again, 1)
    assert scene.member(member.group, again).take() == [(0, 0, 1)]
