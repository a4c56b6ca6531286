"""What a group is handed of transactions (docs/spec.md, «transaction»)."""

from __future__ import annotations

import time

from sharegroup.wire.batches.records import decode_records
from tests.spec.member import Member
from tests.spec.messages import ACCEPT, GAP, RELEASE, Topic
from tests.spec.scene import Scene
from tests.spec.transactions import Transaction
from tests.spec.waiting import wait_for

TEN_MINUTES_MS = 600_000
COMMITTED = {"share_isolation_level": "read_committed"}


def reader(scene: Scene, **configs: str) -> tuple[Topic, Member]:
    topic = scene.topic()
    scene.produce(topic, 1)
    member = scene.member(scene.group(**configs), topic)
    assert member.take() == [(0, 0, 1)]
    assert member.acknowledge([(0, 0, ACCEPT)]).outcome == 0
    return topic, member


def offsets(ranges: list[tuple[int, int, int]]) -> list[int]:
    return [offset for first, last, _ in ranges for offset in range(first, last + 1)]


def test_transaction_1_read_uncommitted_is_the_default(scene: Scene) -> None:
    topic, member = reader(scene)
    transaction = Transaction(scene, topic)
    transaction.write(2)
    assert offsets(member.take(2)) == [1, 2]
    transaction.abort()
    scene.produce(topic, 1)
    assert offsets(member.take(2))[-1] == 4


def test_transaction_2_open_transaction_delays_later_records(scene: Scene) -> None:
    topic, member = reader(scene, **COMMITTED)
    transaction = Transaction(scene, topic)
    transaction.write(2)
    scene.produce(topic, 1)
    assert member.fetch(wait_ms=100).acquired == []
    transaction.commit()
    assert offsets(member.take(3))[:3] == [1, 2, 3]


def test_transaction_3_commit_answers_a_fetch_that_waits(scene: Scene) -> None:
    topic, member = reader(scene, **COMMITTED)
    transaction = Transaction(scene, topic)
    transaction.write(2)
    request = member.begin_fetch(wait_ms=10_000)
    assert member.connection.is_silent(0.1)
    transaction.commit()
    assert offsets(member.finish_fetch(request).acquired)[:2] == [1, 2]


def test_transaction_4_aborted_records_are_never_delivered(scene: Scene) -> None:
    topic, member = reader(scene, **COMMITTED)
    transaction = Transaction(scene, topic)
    transaction.write(2)
    transaction.abort()
    scene.produce(topic, 1)
    taken = offsets(member.take())
    assert not {1, 2} & set(taken)
    assert taken[-1] == 4


def test_transaction_5_interleaved_transactions_are_distinguished(scene: Scene) -> None:
    """Records of an aborted and a committed transaction alternate."""
    topic, member = reader(scene, **COMMITTED)
    aborted, committed = Transaction(scene, topic), Transaction(scene, topic)
    aborted.write(1)
    committed.write(1)
    aborted.write(1)
    committed.commit()
    aborted.abort()
    scene.produce(topic, 1)
    taken = set(offsets(member.take(2)))
    assert {2, 6} <= taken
    assert not {1, 3} & taken


def test_transaction_6_aborted_records_are_no_lag_once_more_is_settled(scene: Scene) -> None:
    topic, member = reader(scene, **COMMITTED)
    transaction = Transaction(scene, topic)
    transaction.write(2)
    transaction.abort()
    scene.produce(topic, 1)
    taken = offsets(member.take())
    assert member.acknowledge([(offset, offset, ACCEPT) for offset in taken]).outcome == 0
    while 4 not in taken:
        taken = offsets(member.take())
        assert member.acknowledge([(offset, offset, ACCEPT) for offset in taken]).outcome == 0
    assert scene.start_and_lag(member.group, topic)[1] == 0


def test_transaction_7_released_committed_record_is_redelivered(scene: Scene) -> None:
    topic, member = reader(scene, **COMMITTED)
    transaction = Transaction(scene, topic)
    transaction.write(1)
    transaction.commit()
    assert offsets(member.take())[0] == 1
    assert member.acknowledge([(1, 1, RELEASE)]).outcome == 0
    assert (1, 1, 2) in member.take()


def test_transaction_8_marker_is_a_gap_with_read_uncommitted(scene: Scene) -> None:
    topic, member = reader(scene)
    transaction = Transaction(scene, topic)
    transaction.write(1)
    transaction.commit()
    scene.produce(topic, 1)
    member.close()
    answer = member.fetch(wait_ms=5000)
    assert offsets(answer.acquired) == [1, 2, 3]
    assert sorted(answer.values()) == [1, 3]
    assert member.acknowledge([(1, 3, ACCEPT, GAP, ACCEPT)]).outcome == 0
    assert scene.start_and_lag(member.group, topic)[1] == 0


def test_transaction_9_marker_is_not_acquired_with_read_committed(scene: Scene) -> None:
    """Kafka acquires its offset nevertheless."""
    topic, member = reader(scene, **COMMITTED)
    transaction = Transaction(scene, topic)
    transaction.write(1)
    transaction.commit()
    scene.produce(topic, 1)
    assert offsets(member.take(2)) == {"ours": [1, 3], "kafka": [1, 2, 3]}[scene.kind]


def test_transaction_10_consumer_of_committed_records_sees_nothing_of_an_open_one(
    scene: Scene,
) -> None:
    """Nor what follows it, whatever it asks: records, the log's end, or the first of a time."""
    topic = scene.topic()
    later_ms = int(time.time() * 1000) + TEN_MINUTES_MS
    scene.produce(topic, 1)
    transaction = Transaction(scene, topic)
    transaction.write(1)
    scene.produce(topic, 1, at_ms=later_ms)

    def seen() -> list[int]:
        return [
            record.offset for record in decode_records(scene.fetch_bytes(topic, 0, committed=True))
        ]

    assert seen() == [0]
    assert scene.fetch_bytes(topic, 1, committed=True) == b""
    assert scene.offset(topic, committed=True) == 1
    assert scene.offset(topic, later_ms, committed=True) == -1
    assert (scene.offset(topic), scene.offset(topic, later_ms)) == (3, 2)
    transaction.commit()
    wait_for(lambda: seen() == [0, 1, 2], "what was committed")
    assert scene.offset(topic, committed=True) == 4
    assert scene.offset(topic, later_ms, committed=True) == 2
