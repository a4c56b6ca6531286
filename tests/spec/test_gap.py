"""Offsets that hold no record, after compaction (docs/spec.md, «gap»)."""

from __future__ import annotations

from sharegroup.wire.batches.records import decode_records
from tests.spec.compacted import Compacted
from tests.spec.messages import ACCEPT, GAP, RELEASE
from tests.spec.scene import Scene


def test_gap_1_before_the_first_record(scene: Scene) -> None:
    log = Compacted(scene)
    for key in "abac":
        log.write(key)
    log.until_left(1, 2, 3)
    member = scene.member(scene.group(), log.topic)
    taken = member.take(3)
    assert taken[0][0] == 1
    assert taken[-1][1] == 3
    assert member.acknowledge([(first, last, ACCEPT) for first, last, _ in taken]).outcome == 0
    log.write("d")
    assert member.take() == [(4, 4, 1)]
    assert scene.start_and_lag(member.group, log.topic)[1] == 1


def test_gap_2_between_log_batches(scene: Scene) -> None:
    """Kafka's range goes over it, and clients say that it is a gap; ours leaves it out."""
    log = Compacted(scene)
    for key in "baac":
        log.write(key)
    log.until_left(0, 2, 3)
    member = scene.member(scene.group(), log.topic)
    wanted = {"ours": [0, 2, 3], "kafka": [0, 1, 2, 3]}[scene.kind]
    ranges = member.take(len(wanted))
    assert [number for first, last, _ in ranges for number in range(first, last + 1)] == wanted
    acks = [(0, 0, ACCEPT), (2, 3, ACCEPT)]
    if scene.kind == "kafka":
        acks = [(0, 3, ACCEPT, GAP, ACCEPT, ACCEPT)]
    assert member.acknowledge(acks).outcome == 0
    assert scene.start_and_lag(member.group, log.topic)[1] == 0


def test_gap_3_within_a_log_batch_is_the_clients_to_find(scene: Scene) -> None:
    """Nobody but who reads the records knows that offset 0 holds none."""
    log = Compacted(scene)
    log.write("aba")
    log.write("c")
    log.until_left(1, 2, 3)
    member = scene.member(scene.group(), log.topic)
    answer = member.fetch(wait_ms=5000, max_records=1)
    [(first, last, _)] = answer.acquired
    assert (first, last) == (0, 2)
    assert sorted(answer.values()) == [1, 2]
    assert member.acknowledge([(0, 2, GAP, ACCEPT, ACCEPT)]).outcome == 0
    assert scene.start_and_lag(member.group, log.topic)[1] == 1


def test_gap_4_released_record_that_was_compacted_is_settled(scene: Scene) -> None:
    log = Compacted(scene)
    for key in "ab":
        log.write(key)
    member = scene.member(scene.group(), log.topic)
    assert member.take(2, batch_size=1) == [(0, 0, 1), (1, 1, 1)]
    assert member.acknowledge([(0, 1, RELEASE)]).outcome == 0
    for key in "ac":
        log.write(key)
    log.until_left(1, 2, 3)
    taken = member.take(3)
    assert [offset for offset in taken if offset[0] <= 1] == [(1, 1, 2)]
    assert member.acknowledge([(1, 3, ACCEPT)]).outcome == 0
    assert scene.start_and_lag(member.group, log.topic)[1] == 0


def test_gap_5_of_one_key_the_newest_record_is_left(scene: Scene) -> None:
    """A record without a value, which says that its key is deleted, is one, too."""
    log = Compacted(scene)
    log.write("ab")
    log.write("a", value=None)
    log.write("b")
    log.write("c")
    log.until_left(2, 3, 4)
    records = decode_records(scene.fetch_bytes(log.topic, 2))
    assert (records[0].key, records[0].value) == (b"a", None)
