from __future__ import annotations

from uuid import UUID

from hypothesis import given, strategies as st

from sharegroup.client.share.session.acquired_records import AcquiredRecords, acquired_offsets
from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.spark.carry import Carry, recognise

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
TOPIC = TopicId(UUID(int=1))
KEY = TopicIdPartition(TOPIC, 0)
OTHER = TopicIdPartition(TopicId(UUID(int=2)), 0)


def ranges(*some: tuple[int, int]) -> OffsetSet:
    return OffsetSet.of(some)


def test_a_refused_accept_and_a_refused_reject_are_carried() -> None:
    refused = {KEY: {ACCEPT: ranges((0, 5)), REJECT: ranges((7, 8))}}
    assert Carry().with_refused(refused) == Carry({KEY: ranges((0, 5))}, {KEY: ranges((7, 8))})


def test_a_refused_release_is_not_carried() -> None:
    assert Carry().with_refused({KEY: {RELEASE: ranges((0, 5))}}) == Carry()


def test_a_later_decision_replaces_the_carried_one() -> None:
    carry = Carry({KEY: ranges((0, 10))}, {KEY: ranges((20, 30))})
    refused = {KEY: {REJECT: ranges((2, 4)), ACCEPT: ranges((25, 26))}}
    assert carry.with_refused(refused) == Carry(
        {KEY: ranges((0, 2), (4, 10), (25, 26))}, {KEY: ranges((2, 4), (20, 25), (26, 30))}
    )


def test_offsets_below_the_start_offset_are_dropped() -> None:
    carry = Carry({KEY: ranges((0, 10)), OTHER: ranges((0, 3))}, {KEY: ranges((12, 14))})
    assert carry.from_offsets({KEY: 13, OTHER: 3}) == Carry({}, {KEY: ranges((13, 14))})


def test_deleted_topics_are_dropped() -> None:
    carry = Carry({KEY: ranges((0, 10)), OTHER: ranges((0, 3))}, {KEY: ranges((12, 14))})
    assert carry.without_topics([TOPIC]) == Carry({OTHER: ranges((0, 3))}, {})


def test_a_redelivered_record_is_recognised_and_the_rest_is_fresh() -> None:
    carry = Carry({KEY: ranges((2, 4))}, {KEY: ranges((8, 20))})
    found = recognise(
        {KEY: (AcquiredRecords.of_range(0, 6, 1), AcquiredRecords.of_range(6, 10, 3))}, carry
    )
    assert found.fresh == {
        KEY: (
            AcquiredRecords.of_range(0, 2, 1),
            AcquiredRecords.of_range(4, 6, 1),
            AcquiredRecords.of_range(6, 8, 3),
        )
    }
    assert found.again == {KEY: {ACCEPT: ranges((2, 4)), REJECT: ranges((8, 10))}}


def test_partition_with_only_known_offsets_has_no_fresh_ones() -> None:
    found = recognise({KEY: (AcquiredRecords.of_range(0, 6, 2),)}, Carry({KEY: ranges((0, 10))}))
    assert found.fresh == {}
    assert found.again == {KEY: {ACCEPT: ranges((0, 6))}}


def test_the_same_offsets_of_another_topic_are_fresh() -> None:
    found = recognise({OTHER: (AcquiredRecords.of_range(0, 6, 1),)}, Carry({KEY: ranges((0, 10))}))
    assert found.fresh == {OTHER: (AcquiredRecords.of_range(0, 6, 1),)}
    assert found.again == {}


members = st.frozensets(st.integers(0, 40))


@given(members, members, members)
def test_fresh_and_known_offsets_are_together_the_acquired_ones(
    held: frozenset[int], accepted: frozenset[int], rejected: frozenset[int]
) -> None:
    carry = Carry({KEY: of(accepted - rejected)}, {KEY: of(rejected)})
    runs = tuple(AcquiredRecords.of_range(first, end, 1) for first, end in of(held))
    found = recognise({KEY: runs}, carry)
    again = found.again.get(KEY, {})
    assert acquired_offsets(found.fresh.get(KEY, ())) == of(held - accepted - rejected)
    assert again.get(ACCEPT, OffsetSet()) == of(held & (accepted - rejected))
    assert again.get(REJECT, OffsetSet()) == of(held & rejected)


def of(some: frozenset[int]) -> OffsetSet:
    return OffsetSet.of((offset, offset + 1) for offset in some)
