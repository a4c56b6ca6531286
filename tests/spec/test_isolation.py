"""How a bad record is parted from the good ones it came with (docs/spec.md, «isolation»)."""

from __future__ import annotations

import pytest

from tests.spec.member import Member
from tests.spec.messages import ACCEPT, RELEASE
from tests.spec.scene import Scene


def reader(scene: Scene, *batches: int, limit: int) -> Member:
    """The one member of a group, and a topic with these log batches."""
    topic = scene.topic()
    scene.produce(topic, *batches)
    return scene.member(scene.group(share_delivery_count_limit=str(limit)), topic)


def give_back(member: Member, *ranges: tuple[int, int]) -> None:
    acks = [(first, last, RELEASE) for first, last in ranges]
    assert member.acknowledge(acks).outcome == 0


def portions(member: Member, records: int, delivery_count: int) -> list[int]:
    """The sizes in which one delivery of all records comes; all are given back at its end."""
    taken: list[tuple[int, int]] = []
    while sum(last - first + 1 for first, last in taken) < records:
        [(first, last, count)] = member.take()
        assert count == delivery_count
        taken.append((first, last))
    give_back(member, *taken)
    return [last - first + 1 for first, last in taken]


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        (2, [[16], [16]]),
        (3, [[16], [16], [1] * 16]),
        (4, [[16], [16], [8, 8], [1] * 16]),
        (5, [[16], [16], [16], [8, 8], [1] * 16]),
        (6, [[16], [16], [16], [8, 8], [4] * 4, [1] * 16]),
        (7, [*[[16]] * 4, [8, 8], [4] * 4, [1] * 16]),
        (8, [*[[16]] * 4, [8, 8], [4] * 4, [2] * 8, [1] * 16]),
        (9, [*[[16]] * 5, [8, 8], [4] * 4, [2] * 8, [1] * 16]),
        (10, [*[[16]] * 5, [8, 8], [4] * 4, [2] * 8, [1] * 16, [1] * 16]),
    ],
)
def test_isolation_1_log_batch_is_redelivered_in_ever_smaller_portions(
    scene: Scene, limit: int, sizes: list[list[int]]
) -> None:
    member = reader(scene, 16, limit=limit)
    assert [portions(member, 16, count + 1) for count in range(limit)] == sizes
    assert member.fetch(wait_ms=50).acquired == []
    assert scene.start_and_lag(member.group, member.topics[0])[1] == 0


def test_isolation_2_no_other_records_are_delivered_with_a_portion(scene: Scene) -> None:
    member = reader(scene, 4, limit=3)
    for count in (1, 2):
        assert portions(member, 4, count) == [4]
    scene.produce(member.topics[0], 4)
    assert member.fetch(wait_ms=5000).acquired == [(0, 0, 3)]


def test_isolation_3_records_before_a_portion_are_delivered_without_it(scene: Scene) -> None:
    member = reader(scene, 4, 4, limit=5)
    assert member.take(8, max_records=1) == [(0, 3, 1), (4, 7, 1)]
    give_back(member, (4, 7))
    for count in (2, 3):
        assert member.take(4) == [(4, 7, count)]
        give_back(member, (4, 7))
    give_back(member, (0, 3))
    assert member.fetch(wait_ms=5000).acquired == [(0, 3, 2)]
    assert member.fetch(wait_ms=5000).acquired == [(4, 5, 4)]


def test_isolation_4_individually_released_record_is_not_isolated(scene: Scene) -> None:
    """Its member accepted other records in the same request. Kafka isolates it nevertheless."""
    member = reader(scene, 8, limit=5)
    for first in range(3):
        assert member.take() == [(first, 7, first + 1)]
        assert member.acknowledge([(first, first, ACCEPT), (first + 1, 7, RELEASE)]).outcome == 0
    fourth = member.take()
    assert fourth == {"ours": [(3, 7, 4)], "kafka": [(3, 6, 4)]}[scene.kind]


def test_isolation_5_close_does_not_release_records_individually(scene: Scene) -> None:
    member = reader(scene, 9, limit=5)
    for first in range(2):
        assert member.take() == [(first, 8, first + 1)]
        assert member.acknowledge([(first, first, ACCEPT), (first + 1, 8, RELEASE)]).outcome == 0
    assert member.take() == [(2, 8, 3)]
    assert member.close().error == 0
    [(first, last, count)] = member.take()
    assert (first, count) == (2, 4)
    assert last - first + 1 == 4
