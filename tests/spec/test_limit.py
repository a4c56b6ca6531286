"""How many records of a share partition may be in flight (docs/spec.md, «limit»)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.member import Member
from tests.spec.messages import ACCEPT, RELEASE
from tests.spec.peer import start_ours
from tests.spec.scene import Scene

LIMIT = {"share_partition_max_record_locks": "100"}


def reader(scene: Scene, *batches: int, **configs: str) -> Member:
    """The one member of a group that may hold 100 records, and a topic with these batches."""
    topic = scene.topic()
    scene.produce(topic, *batches)
    return scene.member(scene.group(**{**LIMIT, **configs}), topic)


def all_there_is(member: Member, **fields: object) -> int:
    """How many records come until none come any more."""
    total = sum(last - first + 1 for first, last, _ in member.take(**fields))
    while count := member.fetch(wait_ms=50, **fields).count:
        total += count
    return total


def test_limit_1_log_batch_and_the_limit_of_locks(scene: Scene) -> None:
    """Batches of 60: the one in which the limit lies is completed, and no other is begun."""
    member = reader(scene, 60, 60, 60)
    assert member.take(60, max_records=60) == [(0, 59, 1)]
    assert all_there_is(member) == 60


def test_limit_2_record_limit_and_the_limit_of_locks(scene: Scene) -> None:
    """One batch of 150: Kafka remembers all of it and hands out the rest as if it were back."""
    member = reader(scene, 150)
    assert all_there_is(member, strict=True) == {"ours": 100, "kafka": 150}[scene.kind]


def test_limit_3_stuck_record(scene: Scene) -> None:
    """Records settled behind one that is held: Kafka counts the span from it on."""
    member = reader(scene, *[50] * 5)
    first = member.take(50, max_records=50)
    assert first == [(0, 49, 1)]
    assert member.acknowledge([(1, 49, ACCEPT)]).outcome == 0
    assert member.take(50, max_records=50) == [(50, 99, 1)]
    assert member.acknowledge([(50, 99, ACCEPT)]).outcome == 0
    answer = member.fetch(wait_ms=50, max_records=50)
    assert answer.acquired == {"ours": [(100, 149, 1)], "kafka": []}[scene.kind]


def test_limit_4_settling_makes_room(scene: Scene) -> None:
    member = reader(scene, 100, 100)
    assert member.take(100) == [(0, 99, 1)]
    assert member.fetch(wait_ms=50).acquired == []
    assert member.acknowledge([(0, 99, ACCEPT)]).outcome == 0
    assert member.take(100) == [(100, 199, 1)]


def test_limit_5_released_records_are_in_flight_and_still_delivered(scene: Scene) -> None:
    member = reader(scene, 100, 100)
    assert member.take(100) == [(0, 99, 1)]
    assert member.acknowledge([(0, 99, RELEASE)]).outcome == 0
    assert member.fetch(wait_ms=5000).acquired == [(0, 99, 2)]
    assert member.fetch(wait_ms=50).acquired == []


def test_limit_6_is_of_all_members_together(scene: Scene) -> None:
    member = reader(scene, *[25] * 8)
    other = scene.member(member.group, *member.topics)
    for taker, first in ((member, 0), (other, 25), (member, 50), (other, 75)):
        assert taker.take(25, max_records=25) == [(first, first + 24, 1)]
    assert member.fetch(wait_ms=50).acquired == []
    assert other.fetch(wait_ms=50).acquired == []


def test_limit_7_is_of_each_partition(scene: Scene) -> None:
    topic = scene.topic(2)
    for partition in (0, 1):
        scene.produce(topic, 100, 100, partition=partition)
    member = scene.member(scene.group(**LIMIT), topic).until_assigned(2)
    taken = all_there_is(member, max_records=100)
    assert taken == 200


def test_limit_8_raised_is_in_effect_at_once(scene: Scene) -> None:
    member = reader(scene, 100, 100)
    assert member.take(100) == [(0, 99, 1)]
    assert member.fetch(wait_ms=50).acquired == []
    scene.alter_group(member.group, share_partition_max_record_locks="200")
    assert member.take(100) == [(100, 199, 1)]


@pytest.mark.ours_only("Kafka has no bound of runs")
def test_limit_9_of_runs_stops_new_records_until_some_settle(scene: Scene, tmp_path: Path) -> None:
    with (
        start_ours(tmp_path, {"sharegroup.share.partition.runs.max": "100"}) as peer,
        Scene(peer, scene.name) as bounded,
    ):
        topic = bounded.topic()
        bounded.produce(topic, *[1] * 110)
        member = bounded.member(bounded.group(), topic)
        member.take(110)
        acks = [(offset, offset, ACCEPT) for offset in range(1, 110, 2)]
        assert member.acknowledge(acks).outcome == 0
        bounded.produce(topic, 1)
        assert member.fetch(wait_ms=100).acquired == []
        assert member.acknowledge([(0, 0, RELEASE)]).outcome == 0
        assert member.fetch(wait_ms=5000).acquired == [(0, 0, 2)], "what waits still comes"
        acks = [(offset, offset, ACCEPT) for offset in range(0, 110, 2)]
        assert member.acknowledge(acks).outcome == 0
        assert member.take() == [(110, 110, 1)]


@pytest.mark.ours_only("Kafka promises nothing about it")
def test_limit_10_freed_locks_go_to_waiting_fetches_first(scene: Scene) -> None:
    """The other member settles and fetches by one request, as consumers do."""
    busy = reader(scene, *[10] * 20)
    assert busy.take(100, max_records=100, batch_size=100) == [(0, 99, 1)]
    parked = scene.member(busy.group, *busy.topics)
    parked.open()
    request = parked.begin_fetch(wait_ms=10_000, max_records=10)
    assert parked.connection.is_silent(0.1)
    assert busy.fetch([(0, 9, ACCEPT)], max_records=10, wait_ms=100).acquired == []
    assert parked.finish_fetch(request).acquired == [(100, 109, 1)]


def test_limit_11_members_get_at_most_an_equal_share_at_the_limit(
    scene: Scene,
) -> None:
    """There are three members, one of which held more than half of the locks."""
    greedy = reader(scene, *[10] * 40)
    assert greedy.take(60, max_records=60, batch_size=100) == [(0, 59, 1)]
    for first in (60, 80):
        other = scene.member(greedy.group, *greedy.topics)
        assert other.take(20, max_records=20, batch_size=100) == [(first, first + 19, 1)]
    assert greedy.acknowledge([(0, 59, ACCEPT)]).outcome == 0
    answer = greedy.fetch(wait_ms=5000, max_records=60, batch_size=100)
    assert answer.count == {"ours": 33, "kafka": 60}[scene.kind]
