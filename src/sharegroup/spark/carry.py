"""Records that are done but whose acknowledgement nobody confirmed: the carry.

A query that dies between the sink's commit and the acknowledgement leaves records that Spark
counts as done and the broker counts as locked; they come back, to the next run of the query or
to another member.  So does a record whose lock ended before its batch did.  The query carries
them in its offsets, and when one is delivered to it again it is acknowledged at once instead of
going through the sink a second time::

    batch committed ──acknowledge──▶ confirmed                    settled
                          │
                          └─ refused, lost ──▶ carry ──delivered again──▶ acknowledged, not shown
                                                 │
                                                 └─ below the start offset: settled by somebody

What was to be rejected is rejected again.  What was to be released is never carried: it is
meant to come back.  The share partition's start offset passes everything that is settled, so
the carry is as short as what is in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.client.offset_set import EMPTY, OffsetSet
from sharegroup.client.records import AcknowledgeType
from sharegroup.ids import TopicId, TopicPartition
from sharegroup.spark.partition import Run

Acquired = Mapping[TopicPartition, tuple[Run, ...]]
"""What a batch holds: ascending runs by partition, each with its delivery count."""
Sets = Mapping[TopicPartition, OffsetSet]
Outcomes = Mapping[TopicPartition, Mapping[AcknowledgeType, OffsetSet]]
"""What becomes of records, by partition and type; the sets of a partition are disjoint."""


@dataclass(frozen=True, slots=True)
class Carry:
    """See the module's text.  ``accept`` and ``reject`` share no offset."""

    accept: Sets = field(default_factory=dict)
    reject: Sets = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many records are carried."""
        return sum(some.count for sets in (self.accept, self.reject) for some in sets.values())

    def with_refused(self, refused: Outcomes) -> Carry:
        """With acknowledgements that were refused; what was to be released is left out."""
        accept, reject = dict(self.accept), dict(self.reject)
        for key, outcomes in refused.items():
            rejected = outcomes.get(AcknowledgeType.REJECT, EMPTY)
            accepted = outcomes.get(AcknowledgeType.ACCEPT, EMPTY)
            reject[key] = (reject.get(key, EMPTY) | rejected) - accepted
            accept[key] = (accept.get(key, EMPTY) | accepted) - rejected
        return Carry(_filled(accept), _filled(reject))

    def without(self, confirmed: Outcomes) -> Carry:
        """Without what has been acknowledged at last."""
        accept, reject = dict(self.accept), dict(self.reject)
        for key, outcomes in confirmed.items():
            for done in outcomes.values():
                accept[key] = accept.get(key, EMPTY) - done
                reject[key] = reject.get(key, EMPTY) - done
        return Carry(_filled(accept), _filled(reject))

    def from_offsets(self, start_offsets: Mapping[TopicPartition, int]) -> Carry:
        """Without what lies below the start offset of its share partition."""
        accept, reject = (
            _filled({key: some.from_offset(start_offsets.get(key, 0)) for key, some in one.items()})
            for one in (self.accept, self.reject)
        )
        return Carry(accept, reject)

    def without_topics(self, gone: Iterable[TopicId]) -> Carry:
        """Without topics that were deleted: nothing of them can be delivered again."""
        dropped = frozenset(gone)
        accept, reject = (
            {key: some for key, some in one.items() if key.topic_id not in dropped}
            for one in (self.accept, self.reject)
        )
        return Carry(accept, reject)


class Recognised(NamedTuple):
    """What an acquisition turned out to be."""

    fresh: Acquired
    """To be processed."""
    again: Outcomes
    """Carried before: acknowledge it at once."""


def recognise(acquired: Acquired, carry: Carry) -> Recognised:
    """Tell what is new to this query from what it has processed already."""
    fresh: dict[TopicPartition, tuple[Run, ...]] = {}
    again: dict[TopicPartition, dict[AcknowledgeType, OffsetSet]] = {}
    for key, runs in acquired.items():
        here = offsets_of(runs)
        outcomes = {
            AcknowledgeType.ACCEPT: here & carry.accept.get(key, EMPTY),
            AcknowledgeType.REJECT: here & carry.reject.get(key, EMPTY),
        }
        known = outcomes[AcknowledgeType.ACCEPT] | outcomes[AcknowledgeType.REJECT]
        left = cut_out(runs, known)
        if left:
            fresh[key] = left
        if known:
            again[key] = {kind: some for kind, some in outcomes.items() if some}
    return Recognised(fresh, again)


def offsets_of(runs: Iterable[Run]) -> OffsetSet:
    """The offsets of runs, whatever their delivery counts."""
    return OffsetSet.of((run.first, run.end) for run in runs)


def cut_out(runs: Sequence[Run], dropped: OffsetSet) -> tuple[Run, ...]:
    """The runs with some offsets cut out."""
    if not dropped:
        return tuple(runs)
    return tuple(
        Run(first, end, run.delivery_count)
        for run in runs
        for first, end in OffsetSet(((run.first, run.end),)) - dropped.between(run.first, run.end)
    )


def _filled(sets: Mapping[TopicPartition, OffsetSet]) -> Sets:
    return {key: some for key, some in sets.items() if some}
