"""What may be said of a record, and by whom (docs/spec.md, «acknowledge»)."""

from __future__ import annotations

from uuid import uuid4

import pytest
from kio.schema.share_acknowledge.v1 import request as share_acknowledge_v1

from tests.spec.member import Member
from tests.spec.messages import ACCEPT, GAP, REJECT, RELEASE, RENEW, Range, Topic, named
from tests.spec.scene import Scene

INVALID, INVALID_STATE, UNKNOWN_TOPIC_ID, UNKNOWN_PARTITION = 42, 121, 100, 3


def holder(
    scene: Scene, records: int, *, partitions: int = 1, **configs: str
) -> tuple[Topic, Member]:
    """A member that holds so many records of each partition, in one log batch."""
    topic = scene.topic(partitions)
    member = scene.member(scene.group(**configs), topic).until_assigned(partitions)
    for partition in range(partitions):
        scene.produce(topic, records, partition=partition)
    member.take(records * partitions)
    return topic, member


def rest(scene: Scene, member: Member) -> list[tuple[int, int, int]]:
    """What another member can take now that this one is gone: all that was not settled."""
    assert member.close().error == 0
    other = scene.member(member.group, *member.topics)
    other.open()
    return other.take()


def test_acknowledge_1_partition_takes_all_of_a_request_or_nothing(scene: Scene) -> None:
    _, member = holder(scene, 4)
    assert member.acknowledge([(2, 2, ACCEPT)]).outcome == 0
    acks = [(0, 1, ACCEPT), (2, 2, REJECT), (3, 3, ACCEPT)]
    assert member.acknowledge(acks).outcome == INVALID_STATE
    assert rest(scene, member) == [(0, 1, 2), (3, 3, 2)]


def test_acknowledge_2_partitions_of_a_request_are_independent(scene: Scene) -> None:
    topic, member = holder(scene, 1, partitions=2)
    acks: dict[tuple[object, int], list[Range]] = {
        (topic.id, 0): [(0, 0, ACCEPT)],
        (topic.id, 1): [(0, 5, ACCEPT)],
    }
    assert member.acknowledge(acks).errors == {0: 0, 1: INVALID}
    assert scene.start_and_lag(member.group, topic, 0)[1] == 0


def test_acknowledge_3_only_the_holder_may(scene: Scene) -> None:
    topic, member = holder(scene, 2)
    other = scene.member(member.group, topic).open()
    assert other.acknowledge([(0, 1, ACCEPT)]).outcome == INVALID_STATE
    assert member.acknowledge([(0, 1, ACCEPT)]).outcome == 0


def test_acknowledge_4_record_without_a_lock_is_an_invalid_record_state(scene: Scene) -> None:
    _, member = holder(scene, 3)
    assert member.acknowledge([(1, 1, RELEASE), (2, 2, ACCEPT)]).outcome == 0
    assert member.acknowledge([(1, 1, ACCEPT)]).outcome == INVALID_STATE
    assert member.acknowledge([(2, 2, ACCEPT)]).outcome == INVALID_STATE


def test_acknowledge_5_acknowledgement_below_the_start_offset_is_ignored(scene: Scene) -> None:
    topic, member = holder(scene, 3)
    assert member.acknowledge([(0, 1, ACCEPT)]).outcome == 0
    stranger = scene.member(member.group, topic).open()
    for kind in (ACCEPT, RELEASE, REJECT):
        assert stranger.acknowledge([(0, 0, kind)]).outcome == 0
    assert member.acknowledge([(0, 2, ACCEPT)]).outcome == 0, "the rest of it counts"
    assert scene.start_and_lag(member.group, topic)[1] == 0


def test_acknowledge_6_offset_beyond_the_last_acquired_is_an_invalid_request(scene: Scene) -> None:
    topic, member = holder(scene, 2)
    scene.produce(topic, 3)
    assert member.acknowledge([(0, 2, ACCEPT)]).outcome == INVALID
    assert member.acknowledge([(0, 2**62, ACCEPT)]).outcome == INVALID
    assert member.acknowledge([(4, 4, ACCEPT)]).outcome == INVALID
    assert member.acknowledge([(0, 1, ACCEPT)]).outcome == 0


@pytest.mark.parametrize(
    "acks",
    [
        [(2, 1, ACCEPT)],
        [(0, 3)],
        [(0, 3, ACCEPT, ACCEPT)],
        [(0, 1, ACCEPT, ACCEPT, ACCEPT)],
        [(0, 3, 5)],
        [(0, 3, -1)],
        [(2, 3, ACCEPT), (0, 1, ACCEPT)],
        [(0, 2, ACCEPT), (1, 3, ACCEPT)],
        [(-5, 1, ACCEPT)],
    ],
    ids=[
        "last before first",
        "no type",
        "too few types",
        "too many types",
        "type 5",
        "type -1",
        "descending",
        "overlapping",
        "below 0",
    ],
)
def test_acknowledge_7_form_that_no_state_could_make_right(scene: Scene, acks: list[Range]) -> None:
    _, member = holder(scene, 4)
    assert member.acknowledge(acks).outcome == INVALID
    assert member.acknowledge([(0, 3, ACCEPT)]).outcome == 0


def test_acknowledge_8_one_offset_in_two_ranges_that_follow_each_other(scene: Scene) -> None:
    _, member = holder(scene, 4)
    assert member.acknowledge([(0, 2, ACCEPT), (2, 3, ACCEPT)]).outcome == INVALID_STATE
    assert member.acknowledge([(0, 3, ACCEPT)]).outcome == 0


def test_acknowledge_9_one_type_for_a_range_or_one_for_each_offset(scene: Scene) -> None:
    _, member = holder(scene, 6)
    types = (ACCEPT, RELEASE, REJECT, GAP)
    assert member.acknowledge([(0, 3, *types), (4, 5, ACCEPT)]).outcome == 0
    assert member.take() == [(1, 1, 2)]


def test_acknowledge_10_unknown_topic_id(scene: Scene) -> None:
    _, member = holder(scene, 1)
    answer = member.acknowledge({(uuid4(), 0): [(0, 0, ACCEPT)]})
    assert (answer.error, answer.errors) == (0, {0: UNKNOWN_TOPIC_ID})


def test_acknowledge_11_unknown_partition(scene: Scene) -> None:
    topic, member = holder(scene, 1)
    answer = member.acknowledge({(topic.id, 3): [(0, 0, ACCEPT)]})
    assert answer.errors == {3: UNKNOWN_PARTITION}


def test_acknowledge_12_share_partition_that_is_not_loaded(scene: Scene) -> None:
    """Nobody has fetched from it since the broker, or its group, began."""
    topic = scene.topic(2)
    member = scene.member(scene.group(), topic).until_assigned(2)
    member.fetch(partitions=[(topic.id, 0)], max_records=0)
    assert member.acknowledge({(topic.id, 1): [(0, 0, ACCEPT)]}).errors == {1: UNKNOWN_PARTITION}


def test_acknowledge_13_empty_acknowledgement_is_no_error(scene: Scene) -> None:
    topic, member = holder(scene, 1)
    answer = member.acknowledge({(topic.id, 0): []})
    assert (answer.error, answer.errors) == (0, {"ours": {0: 0}, "kafka": {}}[scene.kind])


def test_acknowledge_14_gap_archives(scene: Scene) -> None:
    topic, member = holder(scene, 2)
    assert member.acknowledge([(0, 0, GAP), (1, 1, RELEASE)]).outcome == 0
    assert member.take() == [(1, 1, 2)]
    assert scene.start_and_lag(member.group, topic)[1] == 1


@pytest.mark.parametrize("how", ["acknowledge", "fetch"])
def test_acknowledge_15_renewal_needs_is_renew_ack(scene: Scene, how: str) -> None:
    _, member = holder(scene, 2)
    acks = [(0, 1, ACCEPT, RENEW)]
    if how == "fetch":
        assert member.fetch(acks).ack_errors == {0: INVALID}
    else:
        assert member.acknowledge(acks).outcome == INVALID
    assert member.acknowledge([(0, 1, ACCEPT)]).outcome == 0


def test_acknowledge_16_version_1_cannot_renew(scene: Scene) -> None:
    topic, member = holder(scene, 1)

    def ask(kind: int) -> int:
        request = share_acknowledge_v1.ShareAcknowledgeRequest(
            group_id=member.group,
            member_id=member.member_id,
            share_session_epoch=member.session_epoch,
            topics=named(share_acknowledge_v1, "Acknowledge", (), {(topic.id, 0): [(0, 0, kind)]}),
        )
        member.session_epoch += 1
        [partition] = member.connection.ask(request).responses[0].partitions
        return int(partition.error_code)

    assert [ask(RENEW), ask(ACCEPT)] == [INVALID, 0]


def test_acknowledge_17_renewals_and_other_acknowledgements_may_be_mixed(scene: Scene) -> None:
    _, member = holder(scene, 4)
    answer = member.acknowledge([(0, 3, ACCEPT, RENEW, RELEASE, RENEW)], renew=True)
    assert (answer.outcome, answer.lock_ms) == (0, 30_000)
    assert member.take() == [(2, 2, 2)]
    assert member.acknowledge([(1, 1, ACCEPT), (3, 3, ACCEPT)]).outcome == 0


def test_acknowledge_18_group_may_forbid_renewal(scene: Scene) -> None:
    _, member = holder(scene, 1, share_renew_acknowledge_enable="false")
    assert member.acknowledge([(0, 0, RENEW)], renew=True).outcome == INVALID_STATE
    assert member.acknowledge([(0, 0, ACCEPT)]).outcome == 0


def test_acknowledge_19_fetch_with_is_renew_ack_fetches_nothing(scene: Scene) -> None:
    topic, member = holder(scene, 1)
    scene.produce(topic, 1)
    epoch = member.session_epoch
    for field in ("max_records", "min_bytes", "max_bytes"):
        answer = member.fetch([(0, 0, RENEW)], is_renew_ack=True, **{field: 1})
        assert (answer.error, answer.lock_ms) == (INVALID, 0)
    assert member.fetch([(0, 0, RENEW)], is_renew_ack=True, wait_ms=1).error == INVALID
    answer = member.fetch([(0, 0, RENEW)], is_renew_ack=True, epoch=epoch, batch_size=500)
    assert (answer.error, answer.ack_errors, answer.acquired) == (0, {0: 0}, [])
    assert answer.lock_ms == 30_000


def test_acknowledge_20_lock_of_another_member_cannot_be_renewed(scene: Scene) -> None:
    topic, member = holder(scene, 1)
    other = scene.member(member.group, topic).open()
    assert other.acknowledge([(0, 0, RENEW)], renew=True).outcome == INVALID_STATE


def test_acknowledge_21_renewals_of_a_refused_request(scene: Scene) -> None:
    """Ours takes none of it back into effect; either way the record is still the holder's."""
    _, member = holder(scene, 3)
    assert member.acknowledge([(2, 2, ACCEPT)]).outcome == 0
    acks = [(0, 1, RENEW), (2, 2, ACCEPT)]
    assert member.acknowledge(acks, renew=True).outcome == INVALID_STATE
    assert member.acknowledge([(0, 1, ACCEPT)]).outcome == 0


def test_acknowledge_22_lock_duration_of_the_group_is_in_the_answer(scene: Scene) -> None:
    _, member = holder(scene, 1)
    assert member.acknowledge([(0, 0, ACCEPT)]).lock_ms == 30_000
    scene.alter_group(member.group, share_record_lock_duration_ms="25000")
    assert member.acknowledge([]).lock_ms == 25_000
    assert member.acknowledge([], epoch=99).lock_ms == 0


def test_acknowledge_23_group_and_member_id_are_needed(scene: Scene) -> None:
    _, member = holder(scene, 1)
    for wrong in ({"group_id": None}, {"member_id": None}, {"member_id": ""}):
        assert member.acknowledge([], **wrong).error == INVALID
    assert member.acknowledge([], member_id="m" * 37).error == INVALID


def test_acknowledge_24_record_of_another_member_spoils_the_range(scene: Scene) -> None:
    topic = scene.topic()
    member = scene.member(scene.group(), topic)
    other = scene.member(member.group, topic)
    scene.produce(topic, 2, 2)
    assert member.take(max_records=1) == [(0, 1, 1)]
    assert other.take(max_records=1) == [(2, 3, 1)]
    assert member.acknowledge([(0, 3, ACCEPT)]).outcome == INVALID_STATE
    assert member.acknowledge([(0, 1, ACCEPT)]).outcome == 0
