"""How a transcript says things: offsets as the wire does, both ends included; time in seconds."""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.core.delivery.delivery import (
    AckBatch,
    Acquired,
    DeadLetterRange,
    InFlightState,
    StateBatch,
)
from sharegroup.core.delivery.offset_runs import Run
from sharegroup.core.delivery.stored.share_states import (
    ShareSnapshot,
    ShareStateRecord,
    ShareTombstone,
    ShareUpdate,
)
from sharegroup.core.groups.share.assignor import Assignment
from sharegroup.core.groups.share.records import (
    GroupEpoch,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupRecord,
    ShareGroupRecordType,
    ShareGroupStatePartitionMetadata,
    ShareGroupTombstone,
    TargetAssignment,
    TargetAssignmentEpoch,
)
from sharegroup.protocol_enums import AcknowledgeType

Range = tuple[int, int]


def read_range(text: str) -> Range:
    """``3-5`` or ``3``, as a half-open range."""
    first, _, last = text.partition("-")
    return int(first), int(last or first) + 1


def read_ms(text: str) -> int:
    """``30s`` in milliseconds."""
    return round(float(text.removesuffix("s")) * 1000)


def read_acks(words: Iterable[str]) -> list[AckBatch]:
    """``accept 0-3 release 4``: each kind with its range."""
    pairs = iter(words)
    return [AckBatch(*read_range(next(pairs)), (AcknowledgeType[kind.upper()],)) for kind in pairs]


def span(first: int, end: int) -> str:
    return f"{first}" if end == first + 1 else f"{first}-{end - 1}"


def seconds(ms: int) -> str:
    return f"{ms / 1000:g}s"


def run_text(run: Run[InFlightState]) -> str:
    first, end, (state, count, member_id, lock_deadline_ms, told_apart, reason, due_ms) = run
    text = f"{span(first, end)} {state.name} {count}x"
    if member_id:
        text += f" by {member_id} until {seconds(lock_deadline_ms)}"
    if due_ms:
        text += f" due at {seconds(due_ms)}"
    if told_apart:
        text += " (told apart)"
    return text + (f" ({reason.name})" if reason is not None else "")


def acquired_text(entry: Acquired) -> str:
    return f"{span(entry.first, entry.end)} {entry.delivery_count}x"


def letter_text(letter: DeadLetterRange) -> str:
    return f"{span(letter.first, letter.end)} {letter.delivery_count}x {letter.reason.name}"


def batch_text(batch: StateBatch) -> str:
    return f"{span(batch.first, batch.end)} {batch.state.name} {batch.delivery_count}x"


def state_record_text(record: ShareStateRecord) -> str:
    match record:
        case ShareTombstone():
            return "no state any more"
        case ShareSnapshot():
            begin = f"snapshot {record.snapshot_epoch}, state epoch {record.state_epoch}"
        case ShareUpdate():
            begin = "update"
    counts = f"start {record.start_offset}, complete {record.delivery_complete_count}"
    batches = ", ".join(map(batch_text, record.batches))
    return f"{begin}: {counts}" + (f": {batches}" if batches else "")


def assignment_text(assignment: Assignment) -> str:
    numbers = sorted(partition for _, partition in assignment)
    return ", ".join(map(str, numbers)) if numbers else "nothing"


def group_record_text(record: ShareGroupRecord) -> str:
    match record:
        case ShareGroupMemberMetadata():
            return f"member {record.member_id} wants {', '.join(record.subscribed_topic_names)}"
        case GroupEpoch():
            return f"group epoch {record.epoch}"
        case TargetAssignmentEpoch():
            return f"assignment of epoch {record.assignment_epoch}"
        case TargetAssignment():
            return f"{record.member_id} shall have {assignment_text(record.partitions)}"
        case ShareGroupCurrentMemberAssignment():
            told = assignment_text(record.partitions)
            return f"{record.member_id} was told epoch {record.member_epoch}: {told}"
        case ShareGroupStatePartitionMetadata():
            topics = (f"{topic.name} {sorted(topic.partitions)}" for topic in record.initialized)
            return f"has a state for {', '.join(topics) or 'nothing'}"
        case ShareGroupTombstone():
            what = ShareGroupRecordType(record.record_type).name
            return f"no {what}" + (f" of {record.member_id}" if record.member_id else "")
