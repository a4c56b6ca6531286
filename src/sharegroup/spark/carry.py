"""The carry: processed records whose acknowledgement was not confirmed.

If a query dies between the sink's commit and the acknowledgement, Spark counts the records as done,
but they are still acquired at the broker.  They are delivered again, to the next run of the query
or to another member.  The same happens if an acquisition lock ends before its batch.  The query
carries these records in its offsets.  When one is delivered to it again, it is acknowledged at once
and not written to the sink a second time::

    batch committed ──acknowledge──▶ confirmed                    settled
                          │
                          └─ refused, lost ──▶ carry ──delivered again──▶ acknowledged, not shown
                                                 │
                                                 └─ below the start offset: settled by a member

Records to reject are rejected again.  Records to release are never carried, because they are to be
delivered again.  The start offset of a share partition moves past all settled records, so the carry
contains only records in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.client.share.session.acquired_records import AcquiredRecords, acquired_offsets
from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.protocol_enums import AcknowledgeType

AcquiredByPartition = Mapping[TopicIdPartition, tuple[AcquiredRecords, ...]]
"""The acquired records of a batch: ascending runs by partition, each with its delivery count."""
Sets = Mapping[TopicIdPartition, OffsetSet]
DecidedOffsets = Mapping[TopicIdPartition, Mapping[int, OffsetSet]]
"""Offsets by partition and acknowledgement type; the sets of a partition are disjoint.

A release with a delay is a type of its own (`released_after`)."""


@dataclass(frozen=True, slots=True)
class Carry:
    """The carried records, to accept or to reject.  ``accept`` and ``reject`` are disjoint."""

    accept: Sets = field(default_factory=dict)
    reject: Sets = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of carried records."""
        return sum(
            offsets.count for sets in (self.accept, self.reject) for offsets in sets.values()
        )

    def with_refused(self, refused: DecidedOffsets) -> Carry:
        """Return the carry with refused acknowledgements added, except those of type release."""
        accept, reject = dict(self.accept), dict(self.reject)
        for key, outcomes in refused.items():
            rejected = outcomes.get(AcknowledgeType.REJECT, EMPTY)
            accepted = outcomes.get(AcknowledgeType.ACCEPT, EMPTY)
            # Each subtracts the other, because the latest decision about a record counts.
            reject[key] = (reject.get(key, EMPTY) | rejected) - accepted
            accept[key] = (accept.get(key, EMPTY) | accepted) - rejected
        return Carry(_filled(accept), _filled(reject))

    def without(self, confirmed: DecidedOffsets) -> Carry:
        """Return the carry without records whose acknowledgement is confirmed."""
        accept, reject = dict(self.accept), dict(self.reject)
        for key, outcomes in confirmed.items():
            for done in outcomes.values():
                accept[key] = accept.get(key, EMPTY) - done
                reject[key] = reject.get(key, EMPTY) - done
        return Carry(_filled(accept), _filled(reject))

    def from_offsets(self, start_offsets: Mapping[TopicIdPartition, int]) -> Carry:
        """Return the carry without records below the start offset of their share partition."""
        accept, reject = (
            _filled(
                {
                    key: offsets.from_offset(start_offsets.get(key, 0))
                    for key, offsets in sets.items()
                }
            )
            for sets in (self.accept, self.reject)
        )
        return Carry(accept, reject)

    def without_topics(self, gone: Iterable[TopicId]) -> Carry:
        """Return the carry without deleted topics, whose records cannot be delivered again."""
        dropped = frozenset(gone)
        accept, reject = (
            {key: offsets for key, offsets in sets.items() if key.topic_id not in dropped}
            for sets in (self.accept, self.reject)
        )
        return Carry(accept, reject)


class Recognised(NamedTuple):
    """Acquired records, divided into new and carried ones."""

    fresh: AcquiredByPartition
    """New records, to be processed."""
    again: DecidedOffsets
    """Carried records, to be acknowledged at once."""


def recognise(acquired: AcquiredByPartition, carry: Carry) -> Recognised:
    """Divide acquired records into new ones and those that the query has already processed."""
    fresh: dict[TopicIdPartition, tuple[AcquiredRecords, ...]] = {}
    again: dict[TopicIdPartition, dict[int, OffsetSet]] = {}
    for key, runs in acquired.items():
        offsets = acquired_offsets(runs)
        outcomes: dict[int, OffsetSet] = {
            AcknowledgeType.ACCEPT: offsets & carry.accept.get(key, EMPTY),
            AcknowledgeType.REJECT: offsets & carry.reject.get(key, EMPTY),
        }
        carried = outcomes[AcknowledgeType.ACCEPT] | outcomes[AcknowledgeType.REJECT]
        fresh_runs = cut_out(runs, carried)
        if fresh_runs:
            fresh[key] = fresh_runs
        if carried:
            again[key] = {
                kind: kind_offsets for kind, kind_offsets in outcomes.items() if kind_offsets
            }
    return Recognised(fresh, again)


def cut_out(runs: Sequence[AcquiredRecords], dropped: OffsetSet) -> tuple[AcquiredRecords, ...]:
    """Return the runs without the offsets in ``dropped``."""
    if not dropped:
        return tuple(runs)
    return tuple(
        AcquiredRecords.of_range(first, end, run.delivery_count)
        for run in runs
        for first, end in OffsetSet(((run.first_offset, run.end_offset),))
        - dropped.between(run.first_offset, run.end_offset)
    )


def _filled(sets: Mapping[TopicIdPartition, OffsetSet]) -> Sets:
    return {key: offsets for key, offsets in sets.items() if offsets}
