"""What a ShareFetch is answered with, and when (docs/spec.md, «fetch»)."""

from __future__ import annotations

import struct
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from kio.schema.share_fetch.v1 import request as share_fetch_v1

from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.codec.encoder import encode_request
from tests.spec.member import Member
from tests.spec.messages import ACCEPT, OPEN, RELEASE, Topic, milliseconds, named
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for

NOW_MS = int(time.time() * 1000) - 60_000
INVALID, UNKNOWN_TOPIC_ID, UNKNOWN_PARTITION, UNKNOWN_SERVER_ERROR = 42, 100, 3, -1


def reader(scene: Scene, partitions: int = 1, **configs: str) -> tuple[Topic, Member]:
    """A topic and the one member of a group that reads it."""
    topic = scene.topic(partitions)
    member = scene.member(scene.group(**configs), topic).until_assigned(partitions)
    return topic, member


def test_fetch_1_acquired_records_are_returned_as_produced(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 3)
    answer = member.fetch(wait_ms=5000)
    assert answer.acquired == [(0, 2, 1)]
    assert answer.values() == {0: b"0", 1: b"1", 2: b"2"}
    assert answer.errors == {0: 0}


def test_fetch_2_group_and_member_id_are_needed(scene: Scene) -> None:
    _, member = reader(scene)
    for wrong in ({"group_id": None}, {"member_id": None}, {"member_id": ""}):
        assert member.fetch(**wrong).error == INVALID
    assert member.fetch(member_id="m" * 37).error == INVALID
    assert member.fetch(member_id="m" * 36).error == 0


@pytest.mark.parametrize("version", [0, 3])
def test_fetch_3_version_that_is_not_served_closes_the_connection(
    scene: Scene, version: int
) -> None:
    _, member = reader(scene)
    frame = bytearray(b"".join(encode_request(1, "spec", member.fetch_request())))
    struct.pack_into(">h", frame, 6, version)
    member.connection.send(bytes(frame))
    assert member.connection.answer() is None


def test_fetch_4_nothing_to_take_is_answered_when_the_wait_is_over(scene: Scene) -> None:
    _, member = reader(scene)
    member.open()
    request = member.begin_fetch(wait_ms=300)
    assert member.connection.is_silent(0.2)
    answer = member.finish_fetch(request)
    assert (answer.error, answer.partitions) == (0, {})


def test_fetch_5_new_record_completes_a_waiting_fetch(scene: Scene) -> None:
    topic, member = reader(scene)
    member.open()
    request = member.begin_fetch(wait_ms=10_000)
    assert member.connection.is_silent(0.1)
    scene.produce(topic, 2)
    assert member.finish_fetch(request).acquired == [(0, 1, 1)]


def test_fetch_6_less_than_min_bytes_waits_and_is_taken_at_the_end(scene: Scene) -> None:
    topic, member = reader(scene)
    member.open()
    scene.produce(topic, 2)
    request = member.begin_fetch(wait_ms=300, min_bytes=100_000)
    assert member.connection.is_silent(0.2)
    assert member.finish_fetch(request).acquired == [(0, 1, 1)]


@pytest.mark.parametrize("limit", ["max_records", "max_bytes"])
def test_fetch_7_asking_for_nothing_is_answered_at_once(scene: Scene, limit: str) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 2)
    member.open()
    answer = member.fetch(wait_ms=10_000, **{limit: 0})
    assert (answer.error, answer.acquired) == (0, [])


def test_fetch_8_number_of_records_finishes_its_log_batch(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 4, 4)
    assert member.take(max_records=2) == [(0, 3, 1)]
    assert member.take(max_records=2) == [(4, 7, 1)]


def test_fetch_9_record_limit_is_exact_within_a_log_batch(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 5)
    answer = member.fetch(wait_ms=5000, max_records=2, strict=True)
    assert answer.acquired == [(0, 1, 1)]
    assert sorted(answer.values()) == [0, 1, 2, 3, 4], "log batches come whole"
    assert member.take(max_records=2, strict=True) == [(2, 3, 1)]
    assert member.take(max_records=2, strict=True) == [(4, 4, 1)]


def test_fetch_10_record_limit_is_over_all_partitions_of_the_request(scene: Scene) -> None:
    topic, member = reader(scene, 2)
    member.load()
    for partition in (0, 1):
        scene.produce(topic, 4, partition=partition)
    answer = member.fetch(strict=True, max_records=6)
    assert sorted(answer.acquired) == [(0, 1, 1), (0, 3, 1)]
    assert member.take(max_records=6, strict=True) == [(2, 3, 1)]


def test_fetch_11_ranges_are_cut_between_log_batches_at_the_batch_size(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 2, 2, 2, 2)
    assert member.take(8, batch_size=3) == [(0, 3, 1), (4, 7, 1)]


def test_fetch_12_response_has_the_lock_duration_of_the_group(scene: Scene) -> None:
    _, member = reader(scene)
    assert member.fetch().lock_ms == 30_000
    scene.alter_group(member.group, share_record_lock_duration_ms="20000")
    assert member.fetch().lock_ms == 20_000
    assert member.fetch(epoch=77).lock_ms == 0


@pytest.mark.parametrize("mode", [2, -1, 127])
def test_fetch_13_unknown_acquire_mode_is_an_error(scene: Scene, mode: int) -> None:
    _, member = reader(scene)
    answer = member.fetch(share_acquire_mode=mode)
    assert answer.error == {"ours": INVALID, "kafka": UNKNOWN_SERVER_ERROR}[scene.kind]


def test_fetch_14_version_1_is_served(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 2)
    request = share_fetch_v1.ShareFetchRequest(
        group_id=member.group,
        member_id=member.member_id,
        share_session_epoch=0,
        max_wait=milliseconds(5000),
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=10,
        batch_size=10,
        topics=named(share_fetch_v1, "Fetch", topic.partitions(), {}),
        forgotten_topics_data=(),
    )
    [partition] = member.connection.ask(request).responses[0].partitions
    [acquired] = partition.acquired_records
    assert (acquired.first_offset, acquired.last_offset, acquired.delivery_count) == (0, 1, 1)


def test_fetch_15_unknown_topic_id_is_that_partitions_error(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 1)
    named_partitions = [*topic.partitions(), (uuid4(), 5)]
    answer = member.fetch(partitions=named_partitions, wait_ms=5000)
    assert answer.errors == {0: 0, 5: UNKNOWN_TOPIC_ID}
    assert answer.acquired == [(0, 0, 1)]


def test_fetch_16_unknown_partition_is_that_partitions_error(scene: Scene) -> None:
    topic, member = reader(scene)
    answer = member.fetch(partitions=[(topic.id, 7)])
    assert (answer.error, answer.errors) == (0, {7: UNKNOWN_PARTITION})


def test_fetch_17_topic_that_the_group_does_not_read_is_an_error(scene: Scene) -> None:
    """Its share state was never initialized."""
    topic = scene.topic()
    stranger = scene.member(scene.group())
    stranger.topics = (topic,)
    answer = stranger.fetch(wait_ms=1000)
    assert answer.errors == {0: UNKNOWN_SERVER_ERROR}


def test_fetch_18_fetch_needs_no_membership(scene: Scene) -> None:
    """Neither membership nor assignment is checked."""
    topic, member = reader(scene)
    scene.produce(topic, 1)
    stranger = scene.member(member.group)
    stranger.topics = (topic,)
    assert stranger.take() == [(0, 0, 1)]


def test_fetch_19_record_larger_than_max_bytes_is_returned(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 100, 100)
    assert member.take(max_bytes=1) == [(0, 99, 1)]


def test_fetch_20_leader_is_named_with_its_errors_only(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 1)
    [partition] = member.fetch(wait_ms=5000).partitions.values()
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (0, 0)


def test_fetch_21_released_record_and_a_waiting_fetch(scene: Scene) -> None:
    """Ours is answered at once; Kafka's when its wait is over."""
    topic, member = reader(scene)
    scene.produce(topic, 1)
    assert member.take() == [(0, 0, 1)]
    other = scene.member(member.group, topic).open()
    request = other.begin_fetch(wait_ms=1500)
    assert other.connection.is_silent(0.1)
    assert member.acknowledge([(0, 0, RELEASE)]).outcome == 0
    assert other.connection.is_silent(0.4) is {"ours": False, "kafka": True}[scene.kind]
    assert other.finish_fetch(request).acquired == [(0, 0, 2)]


def test_fetch_22_acknowledgements_ride_on_a_fetch(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 1, 1)
    assert member.take(max_records=1) == [(0, 0, 1)]
    answer = member.fetch([(0, 0, ACCEPT)], wait_ms=5000)
    assert (answer.ack_errors, answer.errors) == ({0: 0}, {0: 0})
    assert answer.acquired == [(1, 1, 1)]
    assert scene.start_and_lag(member.group, topic)[1] == 1


def test_fetch_23_refused_acknowledgement_does_not_affect_the_fetch(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 1, 1)
    assert member.take(max_records=1) == [(0, 0, 1)]
    answer = member.fetch([(1, 0, ACCEPT)])
    assert (answer.ack_errors, answer.errors) == ({0: INVALID}, {0: 0})
    assert answer.acquired == [(1, 1, 1)]


def test_fetch_24_result_of_an_acknowledgement_is_returned_without_records(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 1)
    member.take()
    answer = member.fetch([(0, 0, ACCEPT)])
    [partition] = answer.partitions.values()
    assert (partition.error_code, partition.acknowledge_error_code, partition.acquired_records) == (
        0,
        0,
        (),
    )
    assert not partition.records


def test_fetch_25_released_records_are_delivered_before_new_ones(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 1, 1, 1)
    assert member.take(3, batch_size=1) == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
    scene.produce(topic, 1)
    assert member.acknowledge([(1, 1, RELEASE)]).outcome == 0
    assert member.take(2) == [(1, 1, 2), (3, 3, 1)]


def test_fetch_26_one_answer_has_records_of_many_partitions(scene: Scene) -> None:
    topic, member = reader(scene, 3)
    member.load()
    for partition in range(3):
        scene.produce(topic, 2, partition=partition)
    assert member.fetch().by_partition == {number: [(0, 1, 1)] for number in range(3)}


def test_fetch_27_records_may_begin_before_the_acquired_range(scene: Scene) -> None:
    """Whole log batches are returned; the ranges name the acquired records."""
    topic, member = reader(scene)
    scene.produce(topic, 4)
    assert member.take(4) == [(0, 3, 1)]
    assert member.acknowledge([(0, 3, ACCEPT, ACCEPT, RELEASE, ACCEPT)]).outcome == 0
    answer = member.fetch(wait_ms=5000)
    assert answer.acquired == [(2, 2, 2)]
    assert sorted(answer.values()) == [0, 1, 2, 3]


def throttle(answer: Any) -> timedelta:
    found: timedelta = answer.raw.throttle_time
    return found


def test_fetch_28_without_a_quota_the_throttle_time_is_zero(scene: Scene) -> None:
    _, member = reader(scene)
    assert throttle(member.fetch(epoch=OPEN)) == timedelta(0)


def test_fetch_29_min_bytes_are_of_all_partitions_together(scene: Scene) -> None:
    topic, member = reader(scene, 2)
    member.load()
    scene.produce(topic, 3, partition=0)
    request = member.begin_fetch(wait_ms=10_000, min_bytes=120)
    assert member.connection.is_silent(0.1)
    scene.produce(topic, 3, partition=1)
    assert sorted(member.finish_fetch(request).by_partition) == [0, 1]


def test_fetch_30_record_limit_cuts_no_ranges(scene: Scene) -> None:
    topic, member = reader(scene)
    member.load()
    scene.produce(topic, 2, 2, 2)
    assert member.fetch(strict=True, max_records=6, batch_size=2).acquired == [(0, 5, 1)]


def test_fetch_31_neighbours_of_one_count_are_one_range(scene: Scene) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 4)
    assert member.take(4) == [(0, 3, 1)]
    for offset in (1, 0, 3, 2):
        assert member.acknowledge([(offset, offset, RELEASE)]).outcome == 0
    assert member.fetch(wait_ms=5000).acquired == [(0, 3, 2)]
    assert member.acknowledge([(0, 0, ACCEPT), (1, 1, RELEASE)]).outcome == 0
    assert member.acknowledge([(2, 2, RELEASE)]).outcome == 0
    assert member.fetch(wait_ms=5000).acquired == [(1, 2, 3)]


def test_fetch_32_deleted_topic_is_unknown(scene: Scene) -> None:
    """To a session that has its partition, Kafka still knows the topic's name."""
    topic, member = reader(scene)
    scene.produce(topic, 1)
    member.take()
    scene.delete_topic(topic)
    known = {"ours": UNKNOWN_TOPIC_ID, "kafka": UNKNOWN_PARTITION}[scene.kind]
    wait_for(lambda: member.fetch(wait_ms=100).errors == {0: known}, "the session's error")
    new = scene.member(member.group)
    new.topics = (topic,)
    assert new.fetch(wait_ms=100).errors == {0: UNKNOWN_TOPIC_ID}
    wait_for(lambda: member.acknowledge([(0, 0, ACCEPT)]).outcome == UNKNOWN_TOPIC_ID, "the error")


def test_fetch_33_partitions_take_turns(scene: Scene) -> None:
    """With room for one log batch in an answer, every partition comes before one is empty."""
    topic, member = reader(scene, 3)
    member.load()
    for partition in range(3):
        scene.produce(topic, *[2] * 6, partition=partition)
    firsts = [next(iter(member.fetch(max_records=1).by_partition)) for _ in range(6)]
    assert set(firsts) == {0, 1, 2}


def test_fetch_34_session_without_partitions_is_answered_at_once(scene: Scene) -> None:
    _, member = reader(scene)
    assert member.fetch(epoch=OPEN, partitions=[], wait_ms=10_000).error == 0
    assert member.fetch(wait_ms=10_000).partitions == {}


def test_fetch_35_bytes_are_for_partitions_that_have_records(scene: Scene) -> None:
    """Kafka keeps half of them for the other partition, which has none."""
    topic, member = reader(scene, 2)
    member.load()
    batch = encode_batch([SimpleRecord(None, b"x" * 1000, NOW_MS)] * 10)
    for _ in range(10):
        scene.produce_batch(topic, batch)
    answer = member.fetch(max_bytes=45_000)
    assert answer.count == {"ours": 40, "kafka": 20}[scene.kind]


def test_fetch_36_record_released_by_a_fetch_is_in_its_response_or_the_next(
    scene: Scene,
) -> None:
    topic, member = reader(scene)
    scene.produce(topic, 1)
    member.take()
    answers = [member.fetch([(0, 0, RELEASE)]), member.fetch()]
    assert answers[0].ack_errors == {0: 0}
    assert [range_ for answer in answers for range_ in answer.acquired] == [(0, 0, 2)]


def test_fetch_37_answer_ends_with_a_whole_log_batch(scene: Scene) -> None:
    """Kafka cuts the last one where the bytes are used up."""
    topic, member = reader(scene)
    member.load()
    batch = encode_batch([SimpleRecord(None, b"x" * 1000, NOW_MS)] * 10)
    for _ in range(3):
        scene.produce_batch(topic, batch)
    answer = member.fetch(max_bytes=len(batch) + 500)
    size = len(answer.partitions[0].records)
    assert size == {"ours": len(batch), "kafka": len(batch) + 500}[scene.kind]


def test_fetch_39_unusable_partition_waits_with_the_others(scene: Scene) -> None:
    """Its error comes with records, or when the wait is over."""
    topic, member = reader(scene)
    member.load()
    request = member.begin_fetch(wait_ms=400, partitions=[(topic.id, 7)])
    assert member.connection.is_silent(0.15)
    assert member.finish_fetch(request).errors == {7: UNKNOWN_PARTITION}
    request = member.begin_fetch(wait_ms=10_000)
    assert member.connection.is_silent(0.15)
    scene.produce(topic, 1)
    answer = member.finish_fetch(request)
    assert answer.acquired == [(0, 0, 1)]
    assert answer.errors == {0: 0, 7: UNKNOWN_PARTITION}


def test_fetch_40_min_bytes_are_no_more_than_max_bytes(scene: Scene) -> None:
    topic, member = reader(scene)
    member.load()
    scene.produce_batch(topic, encode_batch([SimpleRecord(None, b"x" * 5000, NOW_MS)]))
    request = member.begin_fetch(wait_ms=15_000, min_bytes=1_000_000, max_bytes=1000)
    assert not member.connection.is_silent(5.0)
    assert member.finish_fetch(request).acquired == [(0, 0, 1)]


def test_fetch_41_fetch_of_no_records_reports_missing_partitions(scene: Scene) -> None:
    topic, member = reader(scene)
    member.load()
    unknown = uuid4()
    wanted = [(topic.id, 7), (unknown, 0)]
    answer = member.fetch(partitions=wanted, max_records=0)
    errors = {
        (response.topic_id, partition.partition_index): partition.error_code
        for response in answer.raw.responses
        for partition in response.partitions
    }
    assert errors == {(topic.id, 7): UNKNOWN_PARTITION, (unknown, 0): UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize("strict", [False, True], ids=["batch_optimized", "record_limit"])
def test_fetch_42_separately_released_records_are_acquired_together(
    scene: Scene, strict: bool
) -> None:
    topic = scene.topic()
    scene.produce(topic, *[1] * 6)
    member = scene.member(scene.group(), topic)
    assert member.take(6) == [(0, 5, 1)]
    released = [(1, 1, RELEASE), (3, 3, RELEASE)]
    assert member.acknowledge([(0, 0, ACCEPT), *released[:1], (2, 2, ACCEPT), *released[1:]])
    assert member.take(2, max_records=2, strict=strict) == [(1, 1, 2), (3, 3, 2)]


def test_fetch_38_error_of_a_partition_has_a_message(scene: Scene) -> None:
    """Kafka has the message but leaves it out of the response."""
    topic, member = reader(scene)
    [partition] = member.fetch(partitions=[(topic.id, 7)]).partitions.values()
    assert (partition.error_message is not None) is {"ours": True, "kafka": False}[scene.kind]
