"""What must hold of dead letters (S10), checked once everything has settled.

S10  a record that was rejected, or given back after its last delivery, has a letter; one that
     was accepted, or never failed, has none; a letter has its record's value
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from sharegroup.wire.batches.records import DecodedRecord
from tests.sim.check_logs import LogChecks
from tests.sim.check_shares import Report, ShareChecks
from tests.sim.messages import Partition

PREFIX = "__dlq.errors."
NOT_COPIED = "sharegroup.dlq.not.copied"


class Letter(NamedTuple):
    """Where a dead letter says that it is from; ``value`` is None where nothing was copied."""

    group: str
    topic: str
    index: int
    offset: int
    value: bytes | None


def letter_of(record: DecodedRecord) -> Letter:
    """What a record of a dead-letter topic says."""
    headers = {name: value or b"" for name, value in record.headers}
    value = None if NOT_COPIED in headers else bytes(record.value or b"")
    return Letter(
        headers[f"{PREFIX}group"].decode(),
        headers[f"{PREFIX}topic"].decode(),
        int(headers[f"{PREFIX}partition"]),
        int(headers[f"{PREFIX}offset"]),
        value,
    )


def check_letters(
    group: str,
    letters: Iterable[Letter],
    *,
    topic_ids: Mapping[str, UUID],
    ever: Mapping[str, list[UUID]],
    shares: ShareChecks,
    logs: LogChecks,
    report: Report,
) -> None:
    """``topic_ids``: topics that are there; ``ever``: all that ever had the name."""
    plain = {name: topic_id for name, topic_id in topic_ids.items() if len(ever.get(name, [])) == 1}
    written: set[tuple[Partition, int]] = set()
    for letter in letters:
        if letter.group != group:
            report(f"S10: {letter[:4]} is in the topic of {group}")
        if letter.topic not in plain:
            continue  # There were several of this name: nobody can tell whose the record was.
        partition = Partition(plain[letter.topic], letter.index)
        written.add((partition, letter.offset))
        view = shares.view(group, partition)
        if letter.offset in view.accepted and not (view.is_unsure or view.was_reset):
            report(f"S10: {letter[:4]} was accepted")
        known = logs.view(partition).records.get(letter.offset)
        if letter.value is not None and known is not None and letter.value != known:
            report(f"S10: {letter[:4]} has another value than its record, {known[:20]!r}")
    for (of, partition), view in shares.views.items():
        if of != group or partition.topic_id not in plain.values() or view.is_unsure:
            continue
        for offset in view.failed:
            deleted = logs.view(partition).may_be_deleted(offset)
            if not deleted and (partition, offset) not in written:
                report(f"S10: {group} {partition}-{offset} failed and has no letter")
