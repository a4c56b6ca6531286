"""The validation of acknowledgements: their form, their order, and who holds the records.

Nothing here changes state. `SharePartition.acknowledge` checks a whole request with it before it
applies any part. Costs depend on the batches and the runs they touch: a range of 2**63 offsets with
one type costs no more than a range of one.

The caller knows group, topic and partition and adds them to the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sharegroup.core.delivery.delivery import (
    ACQUIRED,
    STATE_AFTER,
    AckBatch,
    InFlightState,
    SharePartitionLimits,
)
from sharegroup.core.delivery.offset_runs import Run
from sharegroup.errors import InvalidRecordState, InvalidRequest
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import DELAY_MS_MAX, GROUPS_DELAY, AcknowledgeType

NO_JUDGEMENT = frozenset({AcknowledgeType.GAP, AcknowledgeType.RELEASE, AcknowledgeType.RENEW})
"""Acknowledgement types that do not say whether a record is good or bad."""


def check_order(acks: Sequence[AckBatch], *, start_offset: int, end_offset: int) -> None:
    """Refuse a request that is wrong in any state, or that reaches past the acquired offsets.

    Kafka lets a batch begin at the last offset of the batch before, and then finds that record no
    longer acquired. A batch that begins earlier contradicts the request's form.
    """
    if not acks:
        return
    shared: int | None = None
    previous: AckBatch | None = None
    for ack in acks:
        _check_form(ack)
        if previous is not None and ack.first < previous.end:
            # Kafka compares with the last offset of the batch before, so sharing that one offset
            # passes here.
            if ack.first < previous.end - 1:
                raise InvalidRequest(f"{_span(ack)} must not begin before {_span(previous)} ends")
            shared = ack.first
        previous = ack
    if acks[-1].end > end_offset:
        raise InvalidRequest(
            f"{_span(acks[-1])} reach past the last offset ever acquired, {end_offset - 1}"
        )
    # Below the start offset everything is settled, and acknowledging it twice is harmless.
    if shared is not None and shared >= start_offset:
        raise InvalidRecordState(f"offset {shared} is acknowledged twice in one request")


def check_held(run: Run[InFlightState], member_id: MemberId, now_ms: int) -> None:
    """Refuse a run that the member does not hold, or whose lock has ended."""
    state, _, owner, lock_deadline_ms, *_ = run.value
    # The deadline decides, not the sweep: otherwise the result of a late acknowledgement would
    # depend on whether `expire` has run (spec lock-2, lock-6).
    if state is ACQUIRED and owner == member_id and now_ms < lock_deadline_ms:
        return
    if state is not ACQUIRED:
        reason = f"they are {state.name}"
    elif owner != member_id:
        reason = f"member {owner!r} holds them"
    else:
        reason = f"its lock ended at {lock_deadline_ms} ms and it is {now_ms} ms"
    raise InvalidRecordState(
        f"offsets {run.first} to {run.end - 1} are not acquired by member {member_id!r}: {reason}"
    )


def check_renewable(run: Run[InFlightState], limits: SharePartitionLimits) -> None:
    """Refuse to renew locks if the group's configuration does not allow it (KIP-1240)."""
    if not limits.renewal:
        raise InvalidRecordState(
            f"the locks of offsets {run.first} to {run.end - 1} cannot be renewed: "
            "share.renew.acknowledge.enable is false for this group"
        )


def tells_apart(acks: Sequence[AckBatch]) -> bool:
    """Return whether a request accepts or rejects a record, so it has told good from bad records.

    A record that such a request releases was released by choice. A member that cannot read a batch
    releases the whole batch, and a member that has ended sends no acknowledgement. In both cases
    any of the records may be the cause.
    """
    return not all(NO_JUDGEMENT.issuperset(ack.types) for ack in acks)


def claims(ack: AckBatch) -> Iterator[tuple[int, int, int]]:
    """Return the ranges of one type each, as (first, end, type).

    Most members send one type for each record and all types are equal: one count in C finds that.
    """
    first, end, types, _ = ack
    if types.count(types[0]) == len(types):
        yield first, end, types[0]
        return
    for ack_type, group in groupby(types):
        following = first + len(tuple(group))
        yield first, following, ack_type
        first = following


def _check_form(ack: AckBatch) -> None:
    first, end, types, delay_ms = ack
    if first >= end:
        raise InvalidRequest(f"a batch ends at offset {end - 1}, before its first offset {first}")
    # Kafka accepts an acknowledgement of offset -1 without an error (differences.md).
    if first < 0:
        raise InvalidRequest(f"{_span(ack)} begin below 0, the first offset there is")
    if len(types) != 1 and len(types) != end - first:
        raise InvalidRequest(
            f"{_span(ack)} need 1 type or {end - first}, one for each; got {len(types)}"
        )
    if delay_ms != GROUPS_DELAY and not 0 <= delay_ms <= DELAY_MS_MAX:
        raise InvalidRequest(
            f"{_span(ack)} have a redelivery delay of {delay_ms} ms; expected 0 to {DELAY_MS_MAX}"
        )
    unknown = set(types).difference(STATE_AFTER)
    if unknown:
        raise InvalidRequest(f"{_span(ack)} have type {min(unknown)}; known are 0 to 4")


def _span(ack: AckBatch) -> str:
    return f"acknowledged offsets {ack.first} to {ack.end - 1}"
