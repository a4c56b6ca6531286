"""What this consumer holds of one partition: handed out, settled, and ready to be sent.

    acquired ---> handed out ---settle---> settled ---take---> sent with a request
                  (type is open)           (type may change)   (out of this table)

A table lives as long as the share session it belongs to.  When the session is lost the
broker gives its records to others, so whatever is settled afterwards can only fail: the table
is `lost`, keeps counting so that a worker in the middle of a batch is not disturbed, and what
is taken from it carries the error instead of going out.

Nothing here limits what may be handed out while other records are open; that rule is the
consumer's own, so that a window over several polls needs no change here.

Gaps (offsets without a record: compacted, or control records) are settled from the start and
kept as ranges: a range of a billion costs as much as one of two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.client.acknowledgements import GAP, AckRun, runs_of
from sharegroup.client.records import AcknowledgeType, IllegalStateError, TopicPartition
from sharegroup.errors import KafkaError
from sharegroup.ids import TopicPartition as TopicIdPartition

OPEN = -1
"""In place of a type: handed out and not settled."""


class Acquired(NamedTuple):
    """What the records of one acquired range have in common."""

    held: HeldRecords
    delivery_count: int
    lock_deadline: float


@dataclass(frozen=True, slots=True)
class Settled:
    """Acknowledgements of one partition on their way; ``error`` is set if they can't be sent."""

    topic_partition: TopicPartition
    key: TopicIdPartition
    offsets: tuple[int, ...]
    """The records, ascending; gaps are nobody's business."""
    runs: tuple[AckRun, ...]
    error: KafkaError | None


class HeldRecords:
    """See the module's text."""

    __slots__ = ("_gaps", "_lost", "_open", "_types", "explicit", "key", "topic_partition")

    def __init__(
        self, key: TopicIdPartition, topic_partition: TopicPartition, *, explicit: bool
    ) -> None:
        self.key = key
        self.topic_partition = topic_partition
        self.explicit = explicit
        self._types: dict[int, int] = {}
        self._gaps: list[AckRun] = []
        self._open = 0
        self._lost: KafkaError | None = None

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self.topic_partition.partition

    @property
    def open_count(self) -> int:
        """How many records are handed out and not settled."""
        return self._open

    @property
    def has_settled(self) -> bool:
        """Whether `take` would return something."""
        return len(self._types) > self._open or bool(self._gaps)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is open and nothing waits to be taken."""
        return not self._types and not self._gaps

    def holds(self, offset: int) -> bool:
        """Whether the record is handed out and its acknowledgement not sent."""
        return offset in self._types

    def hand_out(self, offsets: Iterable[int]) -> None:
        """These records go to the application now."""
        before = len(self._types)
        self._types.update(dict.fromkeys(offsets, OPEN))
        self._open += len(self._types) - before

    def settle(self, offset: int, acknowledge_type: AcknowledgeType) -> None:
        """Choose, or change, what becomes of a record that is handed out."""
        if not self.explicit:
            raise IllegalStateError(
                f"{self._where(offset)}: acknowledge needs share_acknowledgement_mode='explicit'; "
                "in implicit mode the next poll or commit accepts what the last poll returned"
            )
        self.choose(offset, acknowledge_type)

    def choose(self, offset: int, ack_type: int) -> None:
        """`settle` for the consumer itself, in every mode."""
        before = self._types.get(offset)
        if before is None:
            raise IllegalStateError(
                f"{self._where(offset)} is not held: its acknowledgement was sent already, "
                "or it was never delivered"
            )
        if before == OPEN:
            self._open -= 1
        self._types[offset] = ack_type

    def accept_open(self) -> None:
        """Implicit mode: what was handed out and has no type yet counts as done."""
        if self._open:
            accept = int(AcknowledgeType.ACCEPT)
            types = self._types
            if self._open == len(types):
                self._types = dict.fromkeys(types, accept)
            else:
                self._types = {
                    offset: accept if ack_type == OPEN else ack_type
                    for offset, ack_type in types.items()
                }
            self._open = 0

    def add_gap(self, first: int, end: int) -> None:
        """There is no record in ``[first, end)``."""
        self._gaps.append(AckRun(first, end, GAP))

    def settle_unseen(self, first: int, end: int, ack_type: AcknowledgeType) -> None:
        """Settle offsets whose records nobody can read, such as those of a corrupt batch."""
        self._gaps.append(AckRun(first, end, int(ack_type)))

    def take(self) -> Settled | None:
        """All that is settled, out of the table; None when there is nothing."""
        if not self.has_settled:
            return None
        if self._open:
            settled = {o: t for o, t in self._types.items() if t != OPEN}
            self._types = {o: t for o, t in self._types.items() if t == OPEN}
        else:
            settled, self._types = self._types, {}
        offsets = tuple(sorted(settled))
        runs = (*runs_of(offsets, [settled[offset] for offset in offsets]), *self._gaps)
        self._gaps = []
        return Settled(self.topic_partition, self.key, offsets, runs, self._lost)

    def forget_open(self) -> None:
        """The application gave up what it was handed: settling it now is an error."""
        self._types = {o: t for o, t in self._types.items() if t != OPEN}
        self._open = 0

    def lose(self, error: KafkaError) -> None:
        """The locks are gone: what is settled from now on fails with ``error``.

        Gaps are dropped without a word: whoever gets the range next will find them again.
        """
        self._lost = error
        self._gaps = []

    def _where(self, offset: int) -> str:
        return f"topic {self.topic!r} partition {self.partition} offset {offset}"
