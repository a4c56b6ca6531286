"""The numbers are Kafka's, and the table of transitions is total."""

from __future__ import annotations

import pytest

from sharegroup.core.delivery.delivery import (
    STATE_AFTER,
    InFlightState,
    Reason,
    RecordState,
    SharePartitionLimits,
    renewed,
    settled,
)
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcknowledgeType


def test_states_have_the_numbers_of_the_state_topic() -> None:
    in_memory_only = RecordState.DELAYED
    assert {state.name: state.value for state in RecordState if state is not in_memory_only} == {
        "AVAILABLE": 0,
        "ACQUIRED": 1,
        "ACKNOWLEDGED": 2,
        "ARCHIVING": 3,
        "ARCHIVED": 4,
    }


def test_acknowledgements_have_the_numbers_of_the_wire() -> None:
    assert {ack.name: ack.value for ack in AcknowledgeType} == {
        "GAP": 0,
        "ACCEPT": 1,
        "RELEASE": 2,
        "REJECT": 3,
        "RENEW": 4,
    }
    assert set(STATE_AFTER) == set(AcknowledgeType)


@pytest.mark.parametrize(
    ("ack", "delivery_count", "expected"),
    [
        (AcknowledgeType.ACCEPT, 1, RecordState.ACKNOWLEDGED),
        (AcknowledgeType.ACCEPT, 5, RecordState.ACKNOWLEDGED),
        (AcknowledgeType.REJECT, 1, RecordState.ARCHIVED),
        (AcknowledgeType.GAP, 1, RecordState.ARCHIVED),
        (AcknowledgeType.RELEASE, 4, RecordState.AVAILABLE),
        (AcknowledgeType.RELEASE, 5, RecordState.ARCHIVED),
        (AcknowledgeType.RELEASE, 6, RecordState.ARCHIVED),
    ],
)
def test_acknowledged_record_changes_to_the_state_of_the_table(
    ack: AcknowledgeType, delivery_count: int, expected: RecordState
) -> None:
    held = InFlightState(RecordState.ACQUIRED, delivery_count, MemberId("m"), 30_000)
    limits = SharePartitionLimits(delivery_count_max=5)
    assert settled(held, ack, limits=limits) == InFlightState(expected, delivery_count)


@pytest.mark.parametrize(
    ("ack", "delivery_count", "expected"),
    [
        (AcknowledgeType.ACCEPT, 5, InFlightState(RecordState.ACKNOWLEDGED, 5)),
        (AcknowledgeType.GAP, 5, InFlightState(RecordState.ARCHIVED, 5)),
        (AcknowledgeType.RELEASE, 4, InFlightState(RecordState.AVAILABLE, 4)),
        (
            AcknowledgeType.RELEASE,
            5,
            InFlightState(RecordState.ARCHIVING, 5, reason=Reason.EXHAUSTED),
        ),
        (
            AcknowledgeType.REJECT,
            1,
            InFlightState(RecordState.ARCHIVING, 1, reason=Reason.REJECTED),
        ),
        (
            AcknowledgeType.REJECT,
            5,
            InFlightState(RecordState.ARCHIVING, 5, reason=Reason.REJECTED),
        ),
    ],
)
def test_failed_record_becomes_archiving_with_a_dead_letter_queue(
    ack: AcknowledgeType, delivery_count: int, expected: InFlightState
) -> None:
    held = InFlightState(RecordState.ACQUIRED, delivery_count, MemberId("m"), 30_000)
    limits = SharePartitionLimits(delivery_count_max=5, dead_letters=True)
    assert settled(held, ack, limits=limits) == expected


def test_renewed_record_changes_nothing_but_the_end_of_its_lock() -> None:
    held = InFlightState(RecordState.ACQUIRED, 3, MemberId("m"), 30_000)
    assert renewed(held, lock_deadline_ms=50_000) == InFlightState(
        RecordState.ACQUIRED, 3, MemberId("m"), 50_000
    )


def test_renewal_settles_nothing() -> None:
    held = InFlightState(RecordState.ACQUIRED, 1, MemberId("m"), 30_000)
    with pytest.raises(AssertionError, match="settles nothing"):
        settled(held, AcknowledgeType.RENEW, limits=SharePartitionLimits())
