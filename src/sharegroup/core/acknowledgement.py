"""What makes an acknowledgement valid: its form, its order, and who holds the records.

Nothing here changes anything; `SharePartition.acknowledge` checks a whole request with it
before it applies any part.  Costs follow the batches and the runs they touch: a range of
2**63 offsets with one type costs no more than a range of one.

The caller knows group, topic and partition and adds them to the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sharegroup.core.delivery import ACQUIRED, STATE_AFTER, Ack, AckBatch, Delivery, Limits
from sharegroup.core.offset_runs import Run
from sharegroup.errors import InvalidRecordState, InvalidRequest
from sharegroup.ids import MemberId

NO_JUDGEMENT = frozenset({Ack.GAP, Ack.RELEASE, Ack.RENEW})
"""Acknowledgements that do not say of a record whether it is good or bad."""


def check_order(acks: Sequence[AckBatch], *, start_offset: int, end_offset: int) -> None:
    """Refuse a request that no state could make right, or that reaches past what was acquired.

    Kafka lets a batch begin at the very offset where the one before ended and then finds that
    record no longer acquired; a batch that begins earlier contradicts the request's form.
    """
    if not acks:
        return
    shared: int | None = None
    previous: AckBatch | None = None
    for ack in acks:
        _check_form(ack)
        if previous is not None and ack.first < previous.end:
            if ack.first < previous.end - 1:
                raise InvalidRequest(f"{_span(ack)} must not begin before {_span(previous)} ends")
            shared = ack.first
        previous = ack
    if acks[-1].end > end_offset:
        raise InvalidRequest(
            f"{_span(acks[-1])} reach past the last offset ever acquired, {end_offset - 1}"
        )
    if shared is not None and shared >= start_offset:
        raise InvalidRecordState(f"offset {shared} is acknowledged twice in one request")


def check_held(run: Run[Delivery], member_id: MemberId, now_ms: int) -> None:
    """Refuse a run that the member does not hold, or does not hold any more."""
    state, _, owner, lock_until_ms, _, _ = run.value
    if state is ACQUIRED and owner == member_id and now_ms < lock_until_ms:
        return
    if state is not ACQUIRED:
        found = f"they are {state.name}"
    elif owner != member_id:
        found = f"member {owner!r} holds them"
    else:
        found = f"its lock ended at {lock_until_ms} ms and it is {now_ms} ms"
    raise InvalidRecordState(
        f"offsets {run.first} to {run.end - 1} are not acquired by member {member_id!r}: {found}"
    )


def check_renewable(run: Run[Delivery], limits: Limits) -> None:
    """Refuse to renew where the group's administrator does not want it (KIP-1240)."""
    if not limits.renewal:
        raise InvalidRecordState(
            f"the locks of offsets {run.first} to {run.end - 1} cannot be renewed: "
            "share.renew.acknowledge.enable is false for this group"
        )


def tells_apart(acks: Sequence[AckBatch]) -> bool:
    """Whether a request settles some records for good, so that it releases others by choice.

    A member that could not read a batch releases all of it, and a member that is gone says
    nothing: then any of the records may be the bad one.
    """
    return not all(NO_JUDGEMENT.issuperset(ack.types) for ack in acks)


def claims(ack: AckBatch) -> Iterator[tuple[int, int, int]]:
    """The ranges of one type each: first, end, type.

    Most members name one type for each record and all of them equal: one count in C.
    """
    first, end, types = ack
    if types.count(types[0]) == len(types):
        yield first, end, types[0]
        return
    for ack_type, group in groupby(types):
        following = first + len(tuple(group))
        yield first, following, ack_type
        first = following


def _check_form(ack: AckBatch) -> None:
    first, end, types = ack
    if first >= end:
        raise InvalidRequest(f"a batch ends at offset {end - 1}, before its first offset {first}")
    if first < 0:
        raise InvalidRequest(f"{_span(ack)} begin below 0, the first offset there is")
    if len(types) != 1 and len(types) != end - first:
        raise InvalidRequest(
            f"{_span(ack)} need 1 type or {end - first}, one for each; got {len(types)}"
        )
    unknown = set(types).difference(STATE_AFTER)
    if unknown:
        raise InvalidRequest(f"{_span(ack)} have type {min(unknown)}; known are 0 to 4")


def _span(ack: AckBatch) -> str:
    return f"acknowledged offsets {ack.first} to {ack.end - 1}"
